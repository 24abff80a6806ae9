"""What happened in a simulation: every request, every step, every piece of an answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark.scheduling.step_view import Floats, Ints

_STEP = np.dtype(
    [("end", np.float64), ("seconds", np.float64)]
    + [
        (name, np.int64)
        for name in ("replica", "rows", "prefill", "decoding", "drafting", "verified", "accepted", "committed", "first")
    ]
)


@dataclass(frozen=True, kw_only=True)
class History:
    """A finished simulation. M requests, S steps, E pieces of answers.

    Attributes:
        arrived, first, ended: [M] seconds at which a request came, got its first token, and got its last one.
        answer: [M] its tokens.
        end: [S] seconds at which a step was over.
        seconds: [S] how long it took.
        replica: [S] where.
        rows, prefill: [S] target rows, and those of them for prompts.
        decoding, drafting: [S] requests that decoded, and those of them that drafted.
        verified, accepted: [S] drafts that were verified, and those of them that were kept.
        committed: [S] tokens written by rounds, the first tokens of answers not among them.
        started: [S] first tokens.
        piece_end: [E] when tokens after the first reached a user.
        piece_gap: [E] seconds since that user's last token before.
        piece_tokens: [E] how many came together.
        piece_request: [E] whose they are.
    """

    arrived: Floats
    first: Floats
    ended: Floats
    answer: Ints
    end: Floats
    seconds: Floats
    replica: Ints
    rows: Ints
    prefill: Ints
    decoding: Ints
    drafting: Ints
    verified: Ints
    accepted: Ints
    committed: Ints
    started: Ints
    piece_end: Floats
    piece_gap: Floats
    piece_tokens: Ints
    piece_request: Ints

    @property
    def duration(self) -> float:
        """Seconds until everything was answered."""
        return float(self.end.max(initial=0.0))


class Recorder:
    """Collects a history.

    Args:
        answer: [M] tokens of each answer.
    """

    def __init__(self, answer: Ints) -> None:
        self.answer = answer
        self.arrived = np.full(len(answer), np.nan)
        self.first, self.ended, self._last = self.arrived.copy(), self.arrived.copy(), self.arrived.copy()
        self._steps: list[tuple[float, ...]] = []
        self._pieces: list[tuple[float, Floats, Ints, Ints]] = []

    def step(self, *numbers: float) -> None:
        """A step, in the order of the history's arrays."""
        self._steps.append(numbers)

    def started(self, requests: Ints, now: float) -> None:
        """Their first tokens came."""
        self.first[requests] = self._last[requests] = now

    def wrote(self, requests: Ints, tokens: Ints, now: float) -> None:
        """Later tokens came."""
        self._pieces.append((now, now - self._last[requests], tokens, requests))
        self._last[requests] = now

    def history(self) -> History:
        """All of it."""
        steps: NDArray[np.void] = np.array(self._steps, _STEP)
        sizes = [len(tokens) for _, _, tokens, _ in self._pieces]
        ends, gaps, tokens, requests = zip(*self._pieces, strict=True) if self._pieces else ((), (), (), ())
        columns = {name: steps[name] for name in _STEP.names or () if name != "first"}
        return History(
            arrived=self.arrived,
            first=self.first,
            ended=self.ended,
            answer=self.answer,
            **columns,
            started=steps["first"],
            piece_end=np.repeat(np.array(ends, np.float64), sizes),
            piece_gap=np.concatenate((np.zeros(0), *gaps)),
            piece_tokens=np.concatenate((np.zeros(0, np.int64), *tokens)),
            piece_request=np.concatenate((np.zeros(0, np.int64), *requests)),
        )
