"""Recorded rounds as arrays, and which of their labels may be used.

**What is known.** A round proposes a block and verifies its first h positions (its *horizon*), of which the first a
are accepted. The prefix label of position k (counted from 0) is 1 if a > k. It is known if k < h: then either all of
0 .. k were accepted, or the first rejection lies at or before k, and everything behind it fails with it. A position at
or past the horizon is *censored*: unknown, not failed.

**Why a rejection does not make later positions known.** With h = 3 and a rejection at 1, the prefix label of position 6
is certainly 0. But had the three been accepted, it would be unknown, so using such labels would keep the failures and
drop the successes: a bias towards failure. Whether a label is used must not depend on the outcome. So position k uses
the rounds with h > k and no others, whatever happened in them.

**What is exact.** h must be decided without looking at the outcome: by a fixed length, chance, load, or a policy that
reads confidences. Given the confidences, h then says nothing about acceptance, so on the rounds that reach k the
difference of probability and label has the same mean as if all had been verified that far: figures are exact *for the
population the policy sends to k*. For conditional confidences the same holds with the rounds where k was verified and
everything before it accepted.

**What is not.** If h depends on the confidence itself, that population is selected: under a threshold, few rounds of
low confidence are seen at depth. A figure that pools confidences (ECE, a fitted temperature) then describes the
selected rounds, and carries over to the others only as far as the confidences are sufficient (acceptance depends on
the round through them alone) and one temperature fits the whole range. Confidences that are never verified can be
extrapolated to, not checked. To fit for all rounds, record them with whole blocks verified (policy ``fixed``), which
is what the command ``dspark calibrate`` does.

A drafted stop token ends what can be known as well: if it is accepted the answer is over and the positions behind it
are never judged; if it is rejected they would be. So the horizon ends with the first drafted stop token in both cases.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class RecordedRound(Protocol):
    """What is read of a round; the engine's ``RoundTrace`` is one."""

    @property
    def drafted(self) -> tuple[int, ...]: ...  # noqa: D102 - proposed token ids

    @property
    def confidence(self) -> tuple[float, ...]: ...  # noqa: D102 - of each, before calibration

    @property
    def verified(self) -> int: ...  # noqa: D102 - how many of them the target looked at

    @property
    def accepted(self) -> int: ...  # noqa: D102 - how many of them were kept


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """N recorded rounds of blocks of G positions.

    Attributes:
        confidence: [N, G] float64 conditional acceptance probabilities; nan where nothing was proposed.
        horizon: [N] int64 leading positions whose labels are known, decided without looking at the outcome.
        accepted: [N] int64 leading positions that were accepted, at most the horizon.
    """

    confidence: NDArray[np.float64]
    horizon: NDArray[np.int64]
    accepted: NDArray[np.int64]

    def __post_init__(self) -> None:
        n, _ = self.confidence.shape
        assert self.horizon.shape == self.accepted.shape == (n,), (self.horizon.shape, self.accepted.shape)
        assert (self.accepted <= self.horizon).all(), "more was accepted than looked at"
        assert not np.isnan(self.confidence[self.known]).any(), "a verified position has no confidence"

    @classmethod
    def of(cls, traces: Sequence[RecordedRound], block_size: int, stop_ids: Collection[int] = ()) -> Rounds:
        """Collect recorded rounds; those that proposed nothing or carry no confidence are left out.

        Args:
            traces: the rounds.
            block_size: G.
            stop_ids: tokens that end an answer.
        """
        used = [trace for trace in traces if trace.confidence]
        confidence = np.full((len(used), block_size), np.nan)
        for row, trace in zip(confidence, used, strict=True):
            row[: len(trace.confidence)] = trace.confidence
        horizon = np.array([_horizon(trace, stop_ids) for trace in used], np.int64)
        accepted = np.array([trace.accepted for trace in used], np.int64)
        return cls(confidence=confidence, horizon=horizon, accepted=np.minimum(accepted, horizon))

    def __len__(self) -> int:
        return len(self.horizon)

    @property
    def block_size(self) -> int:
        """G."""
        return self.confidence.shape[1]

    @property
    def labels(self) -> NDArray[np.bool_]:
        """[N, G] whether all positions up to this one were accepted; means something where ``known``."""
        return self._places < self.accepted[:, None]

    @property
    def known(self) -> NDArray[np.bool_]:
        """[N, G] where the prefix label is known and may be used: pair it with survival."""
        return self._places < self.horizon[:, None]

    @property
    def reached(self) -> NDArray[np.bool_]:
        """[N, G] where the position was verified with all before it accepted: pair it with conditional confidence."""
        return self.known & (self._places <= self.accepted[:, None])

    @property
    def censored(self) -> NDArray[np.bool_]:
        """[N, G] where something was proposed whose label may not be used."""
        return ~np.isnan(self.confidence) & ~self.known

    def survival(self, confidence: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """[N, G] running product of the confidences, or of others (calibrated ones) given in their place."""
        return np.cumprod(self.confidence if confidence is None else confidence, axis=1, dtype=np.float64)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Rounds:
        """Some of the rounds."""
        return Rounds(confidence=self.confidence[rows], horizon=self.horizon[rows], accepted=self.accepted[rows])

    @classmethod
    def join(cls, parts: Sequence[Rounds]) -> Rounds:
        """Several recordings of one drafter, one after the other."""
        return cls(
            confidence=np.concatenate([part.confidence for part in parts]),
            horizon=np.concatenate([part.horizon for part in parts]),
            accepted=np.concatenate([part.accepted for part in parts]),
        )

    @property
    def _places(self) -> NDArray[np.int64]:
        return np.arange(self.block_size, dtype=np.int64)


def _horizon(trace: RecordedRound, stop_ids: Collection[int]) -> int:
    """Verified positions up to and including the first drafted stop token."""
    ends = (place + 1 for place, token in enumerate(trace.drafted[: trace.verified]) if token in stop_ids)
    return min(trace.verified, next(ends, trace.verified))
