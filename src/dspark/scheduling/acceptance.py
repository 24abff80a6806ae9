"""How often drafts are accepted: a decayed estimate for each request, on a prior that all requests share.

**Pooled.** Position j counts decayed trials n and successes h of all requests (a trial: verified with all before it
accepted). Its conditional acceptance is (h + s * before) / (n + s), where ``before`` is the estimate of position j - 1
and for j = 0 the stated mean, so that positions nobody has reached follow their predecessor.

**Of a request.** Its decayed trials N, successes H, and the successes E that the pooled estimate expected of it give
two rates, (H + s * pooled) / (N + s) and (E + s * pooled) / (N + s). Their distance in logits is added at every
position. A fresh request has N = 0 and so starts exactly from the pooled estimate; nothing of one request goes to
another but its share in the pooled counts.

**Drafted, but not worth a look.** A block of which nothing was verified counts as one trial of position 0, with the
confidence its head stated there as the success: whoever drafts and then trusts nothing of it shall stop drafting.

All of it comes from earlier steps, so it may decide anything about a later step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark.core import InputError
from dspark.scheduling.step_view import Floats, Ints

_EDGE = 1e-3


@dataclass(frozen=True, kw_only=True)
class AcceptancePrior:
    """What is believed before anything was seen, and how long what was seen is remembered.

    Attributes:
        mean: conditional acceptance at every position, in (0, 1).
        pooled_strength: trials that this belief is worth against those of all requests, per position.
        request_strength: trials that the pooled estimate is worth against those of one request.
        pooled_memory: trials of a position after which the pooled counts have decayed to about a third.
        request_memory: rounds after which a request's counts have.

    Raises:
        InputError: a number is out of range.
    """

    mean: float = 0.7
    pooled_strength: float = 4.0
    request_strength: float = 4.0
    pooled_memory: float = 400.0
    request_memory: float = 12.0

    def __post_init__(self) -> None:
        if not 0 < self.mean < 1:
            raise InputError(f"the prior acceptance must be between 0 and 1, got {self.mean}")
        if min(self.pooled_strength, self.request_strength) <= 0 or min(self.pooled_memory, self.request_memory) <= 1:
            raise InputError("strengths of the prior must be above 0 and memories above 1")


class AcceptanceEstimates:
    """Estimates for S slots and blocks of G positions.

    Args:
        num_slots: S.
        block_size: G.
        prior: where everything starts.
    """

    def __init__(self, num_slots: int, block_size: int, prior: AcceptancePrior | None = None) -> None:
        self.prior = prior or AcceptancePrior()
        self._trials, self._hits = np.zeros(block_size), np.zeros(block_size)
        self._own = np.zeros((3, num_slots))  # N, H and E of each request
        self.pooled: Floats = self._pool()
        """[G] conditional acceptance over all requests."""

    def _pool(self) -> Floats:
        prior, before = self.prior, self.prior.mean
        estimate = np.empty(len(self._trials))
        for j, (trials, hits) in enumerate(zip(self._trials.tolist(), self._hits.tolist(), strict=True)):
            before = (hits + prior.pooled_strength * before) / (trials + prior.pooled_strength)
            estimate[j] = before
        return np.clip(estimate, _EDGE, 1 - _EDGE)

    def clear(self, slots: Ints) -> None:
        """Make slots those of fresh requests."""
        self._own[:, slots] = 0.0

    def observe(
        self, slots: Ints, known: np.ndarray, verified: Ints, accepted: Ints, ignored: Floats | None = None
    ) -> None:
        """Learn from one round of each request.

        Args:
            slots: [R] of the requests.
            known: [R] whether the slot still is that request's; if not, only the pooled counts learn.
            verified: [R] drafts that were looked at.
            accepted: [R] drafts that were kept.
            ignored: [R] what was stated of the first draft where blocks were drafted and none of it verified; nan
                everywhere else.
        """
        reached = np.minimum(verified, accepted + 1)  # [R] trials of each request, one per position
        promised = np.concatenate(([0.0], np.cumsum(self.pooled)))
        trials, hits = self._longer(reached), self._longer(accepted)
        hits = hits.astype(np.float64)
        skipped = np.zeros(len(slots), bool) if ignored is None else ~np.isnan(ignored)
        if ignored is not None:
            trials[0] += skipped.sum()
            hits[0] += ignored[skipped].sum()
        fade = (1 - 1 / self.prior.pooled_memory) ** trials
        self._trials, self._hits = fade * self._trials + trials, fade * self._hits + hits
        self.pooled = self._pool()
        own = known & ((verified > 0) | skipped)
        successes = accepted if ignored is None else np.where(skipped, ignored, accepted)
        tried = np.where(skipped, 1, reached)
        news = np.stack((tried[own], successes[own], promised[tried[own]]))
        self._own[:, slots[own]] = (1 - 1 / self.prior.request_memory) * self._own[:, slots[own]] + news

    def _longer(self, lengths: Ints) -> Ints:
        """[G] how many lengths are above j."""
        counts = np.bincount(lengths, minlength=len(self._trials) + 1)
        return len(lengths) - np.cumsum(counts)[:-1]

    def conditional(self, slots: Ints) -> Floats:
        """[R, G] probability that a position is accepted given that all before it were."""
        pooled, strength = self.pooled, self.prior.request_strength
        trials, hits, expected = self._own[:, slots]
        start = strength * pooled[0]
        odds = (hits + start) / (trials - hits + strength - start)
        usual = (expected + start) / np.maximum(trials - expected + strength - start, _EDGE)
        ratio = pooled / (1 - pooled) * (odds / usual)[:, None]
        conditional: Floats = ratio / (1 + ratio)
        return conditional

    def survival(self, slots: Ints) -> Floats:
        """[R, G] probability that a position and all before it are accepted."""
        return np.cumprod(self.conditional(slots), axis=1, dtype=np.float64)
