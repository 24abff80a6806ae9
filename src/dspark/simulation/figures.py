"""What a simulation says: speed, waiting, and what was verified for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark.evaluation.load.latency import LatencyTarget, Percentiles
from dspark.scheduling.step_view import Floats
from dspark.simulation.history import History


@dataclass(frozen=True, kw_only=True)
class Window:
    """Seconds that figures are about: those after ``start``, up to ``end``."""

    start: float
    end: float

    def holds(self, times: Floats) -> np.ndarray:
        """[N] which moments are in it."""
        return (times > self.start) & (times <= self.end)

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What happened in a window of a simulation; docs/simulator.md says more.

    Attributes:
        tokens_per_second: of all users together.
        user_tokens_per_second: of one user, from the first token on; None if nothing came after a first token.
        first_token: seconds to the first token.
        token: seconds for each further token.
        output_gap: seconds from one output of a user to the next.
        rows_per_token: target rows of rounds (anchors and verified drafts) per token that rounds wrote.
        verify_len: verified drafts per round.
        accepted_share: accepted drafts over verified ones; None if none were verified.
        drafting: share of the rounds that drafted.
        step_seconds: mean length of a step; None if there was none.
        attainment: share of the requests that came in the window and met the latency target; None if none came.
    """

    tokens_per_second: float
    user_tokens_per_second: float | None
    first_token: Percentiles | None
    token: Percentiles | None
    output_gap: Percentiles | None
    rows_per_token: float | None
    verify_len: float
    accepted_share: float | None
    drafting: float
    step_seconds: float | None
    attainment: float | None

    @classmethod
    def of(cls, history: History, window: Window, target: LatencyTarget) -> Figures:
        """Look at a window.

        Args:
            history: what happened.
            window: when.
            target: what attainment is measured against.
        """
        steps, pieces = window.holds(history.end), window.holds(history.piece_end)
        gaps, tokens = history.piece_gap[pieces], history.piece_tokens[pieces]
        rounds, verified, committed, accepted, drafting = (
            int(column[steps].sum())
            for column in (history.decoding, history.verified, history.committed, history.accepted, history.drafting)
        )
        came = (history.arrived >= window.start) & (history.arrived < window.end)
        waits = (history.first - history.arrived)[came]
        met = _met(history, target)[came]
        written = int(tokens.sum()) + int(window.holds(history.first).sum())
        return cls(
            tokens_per_second=written / window.seconds if window.seconds else 0.0,
            user_tokens_per_second=float(tokens.sum() / gaps.sum()) if len(gaps) else None,
            first_token=Percentiles.of(waits),
            token=Percentiles.of(gaps / tokens, tokens),
            output_gap=Percentiles.of(gaps),
            rows_per_token=(rounds + verified) / committed if committed else None,
            verify_len=verified / rounds if rounds else 0.0,
            accepted_share=accepted / verified if verified else None,
            drafting=drafting / rounds if rounds else 0.0,
            step_seconds=float(history.seconds[steps].mean()) if steps.any() else None,
            attainment=float(met.mean()) if came.any() else None,
        )


def whole(history: History) -> Window:
    """From the first arrival until everything was answered."""
    return Window(start=0.0, end=history.duration)


def steady(history: History, users: int) -> Window:
    """The middle of a closed loop: from the moment when as many answers as users are whole, to the last arrival.

    Before that all users are at the same point of their first answers, afterwards they become fewer. The whole, where
    the users ask too little for such a middle.
    """
    ended, last = np.sort(history.ended), float(history.arrived.max(initial=0.0))
    if len(ended) < 2 * users or ended[users - 1] >= last:
        return whole(history)
    return Window(start=float(ended[users - 1]), end=last)


def _met(history: History, target: LatencyTarget) -> np.ndarray:
    """[M] whether an answer met the target."""
    later = history.answer - 1
    slow = (history.ended - history.first) > target.token * later
    return ~slow & (history.first - history.arrived <= target.first_token)


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a simulation went, in slices of equal length. N slices.

    Attributes:
        seconds: [N] middle of each.
        tokens_per_second: [N] of all users together.
        verify_len: [N] verified drafts per round; nan where nobody decoded.
        in_progress: [N] requests that had come and were not answered, at the middle.
    """

    seconds: Floats
    tokens_per_second: Floats
    verify_len: Floats
    in_progress: Floats

    @classmethod
    def of(cls, history: History, slices: int = 60) -> Course:
        """Cut a simulation into slices."""
        edges = np.linspace(0.0, max(history.duration, 1e-9), slices + 1)
        middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
        rounds, verified, tokens = (
            np.histogram(history.end, edges, weights=column)[0]
            for column in (history.decoding, history.verified, history.committed + history.started)
        )
        came, went = (
            np.searchsorted(np.sort(times), middle, side="right") for times in (history.arrived, history.ended)
        )
        with np.errstate(invalid="ignore"):
            return cls(
                seconds=middle,
                tokens_per_second=tokens / width,
                verify_len=verified / rounds,
                in_progress=(came - went).astype(np.float64),
            )
