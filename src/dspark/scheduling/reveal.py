"""Confidences of the current step, shown only as far as that cannot change what the target's answer is.

**The rule** (method, section 6). Whether draft (r, j) is verified (request r, slot j counted from 0) may depend on r's
tokens before slot j and on other requests, never on its own token or later ones. Confidence c[r, j] saw the tokens
before slot j, so it may take part in deciding about (r, j); c[r, j + 1] saw the token of slot j, so it may not.

**How it is kept.** Nothing but a :class:`Reveal` gives out confidences, and it shows c[r, j + 1] only after (r, j) has
been admitted. Admission cannot be taken back, and what is admitted *is* the plan. So whatever a policy does with a
``Reveal``: when (r, j) is admitted, all that was ever shown are confidences of slots up to j of r, and of others up to
their first slot that is not admitted. The tokens those depend on are all in slots that are verified. Hence verification
is one sequential procedure: look at a token only after having committed to judging it. Given everything seen before, an
admitted token is still distributed as it was drawn, so accepting or correcting it gives the target's law, and where
nothing more is admitted the target's own draw does; for all requests jointly.

**Top K is such a walk** (:meth:`Reveal.admit_top`). Survival a[r, j] = c[r, 0] * .. * c[r, j] never rises with j. Order
all candidates by falling a, then rising j, then rising r; this is a strict order. For j < k (r, j) precedes (r, k): its
a is not smaller, and on equality its slot is. So the candidates of r that precede (r, k) are exactly its k earlier
ones, whatever their later confidences, and (r, k) is among the first K if and only if k plus the number of candidates
of *other* requests that precede it is below K. That depends on a[r, k], thus on c[r, 0 .. k], and on others. And the
first K of the order are what K steps of "admit the best of the next slots" admit, since these lists are sorted: the
best candidate left is always some request's next slot, whose confidence is shown already. So top K for a K that is
known before the step (or is decided by what a walk has shown) passes the rule with the joint argument above. K must not
depend on current confidences otherwise: an unconstrained search for the best K over the *current* ones is the
counter-example of the method's section 6. A floor that is known before the step ends the same walk earlier.

**Early stop is such a walk too** (:meth:`Reveal.climb`): the same order, ended at the first candidate that does not
raise the throughput, which depends on the candidates up to that one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dspark.scheduling.step_view import Floats, Ints

_CLOSED = -1.0


class Reveal:
    """The drafted blocks of one step, R requests of at most G slots; nothing is admitted at first.

    Args:
        proposed: [R] drafted tokens.
        confidence: [R, G] probability that slot j's token is accepted given that all before it were; None without a
            confidence head. It must depend on tokens before slot j only. What is no number counts as 0; entries past
            ``proposed`` are not read.
    """

    def __init__(self, proposed: ArrayLike, confidence: ArrayLike | None = None) -> None:
        self._proposed = np.asarray(proposed, np.int64)
        self._lengths = np.zeros_like(self._proposed)
        self._closed = False
        self._conditional: Floats | None = None
        self._whole: Floats | None = None
        if confidence is not None:
            self._conditional = _probabilities(confidence, self._proposed)
            self._whole = np.cumprod(self._conditional, axis=1, dtype=np.float64)
            self._places = np.arange(self._whole.shape[1])
            if self._proposed.size and self._proposed.min() < len(self._places):
                self._whole[self._places >= self._proposed[:, None]] = _CLOSED

    @property
    def proposed(self) -> Ints:
        """[R] drafted tokens."""
        return self._proposed.copy()

    @property
    def lengths(self) -> Ints:
        """[R] admitted so far: the plan."""
        return self._lengths.copy()

    @property
    def has_confidence(self) -> bool:
        """Whether there are any to show."""
        return self._whole is not None

    def frontier(self) -> Floats:
        """[R] survival of the next slot of each request; below 0 where its block is at its end."""
        whole = self._survival()
        rows = np.nonzero(self._lengths < self._proposed)[0]
        shown = np.full(len(self._lengths), _CLOSED)
        shown[rows] = whole[rows, self._lengths[rows]]
        return shown

    def admit(self, request: int) -> None:
        """Admit the next slot of a request, for good, which shows the confidence behind it."""
        assert self._lengths[request] < self._proposed[request], f"the block of request {request} is at its end"
        lengths = self._lengths.copy()
        lengths[request] += 1
        self._admit_to(lengths)

    def admit_first(self, counts: ArrayLike) -> None:
        """Admit the first slots of every request up to a count [R], as far as there are so many; reads nothing."""
        self._admit_to(np.minimum(np.maximum(self._lengths, np.asarray(counts, np.int64)), self._proposed))

    def admit_trusted(self, threshold: float) -> None:
        """Admit the slots of each block before the first whose own (conditional) confidence is below a threshold."""
        assert self._conditional is not None, "a policy that needs confidence was let through without one"
        trusted = np.logical_and.accumulate(self._conditional >= threshold, axis=1)
        self.admit_first(trusted.sum(axis=1))

    def admit_top(self, count: int, floor: float = 0.0) -> None:
        """Admit the candidates of largest survival, so many as said, none below the floor; see the module's proof.

        Args:
            count: how many, on top of what is admitted already.
            floor: survival below which nothing is admitted.
        """
        survival = self._candidates()
        values = survival.ravel()
        if count <= 0 or values.size == 0:
            return
        least = (
            _CLOSED if count >= values.size else float(np.partition(values, values.size - count)[values.size - count])
        )
        self._take(survival, count, least) if least >= floor else self._take_all(survival, floor)

    def climb(self, rates: Floats) -> None:
        """Algorithm 1: admit in order of survival while that raises the throughput, and stop where it does not.

        Args:
            rates: steps per second with 0, 1, .. further drafts admitted, as many entries as can be needed.
        """
        survival = self._candidates()
        falling = np.sort(survival[survival >= 0.0])[::-1]
        start = len(self._proposed) + self._admitted_survival()
        throughput = (start + np.cumsum(falling)) * rates[1 : len(falling) + 1]
        before = np.concatenate(([start * rates[0]], throughput[:-1]))
        stops = np.nonzero(~(throughput > before))[0]
        count = int(stops[0]) if len(stops) else len(falling)
        if count:
            self._take(survival, count, float(falling[count - 1]))

    def _take(self, survival: Floats, count: int, least: float) -> None:
        """Admit ``count`` candidates, the last of which has survival ``least``; equal ones by slot, then by request."""
        more = (survival >= least).sum(axis=1)
        if more.sum() > count:
            more = (survival > least).sum(axis=1)
            _, ties = np.nonzero((survival == least).T)
            more += np.bincount(ties[: count - int(more.sum())], minlength=len(more))
        self._admit_to(self._lengths + more)

    def _take_all(self, survival: Floats, floor: float) -> None:
        """Admit every candidate at or above a floor."""
        self._admit_to(self._lengths + (survival >= max(floor, 0.0)).sum(axis=1))

    def _admit_to(self, lengths: Ints) -> None:
        """The one place where the plan grows."""
        assert not self._closed, "the plan was closed when its confidences were disclosed"
        self._lengths = lengths

    def close(self) -> Floats | None:
        """End admission and disclose everything: [R, G] survivals, below 0 past the blocks; None without confidences.

        The plan is final from then on, so that what is disclosed can serve later steps only.
        """
        self._closed = True
        return self._whole

    def _survival(self) -> Floats:
        assert self._whole is not None, "a policy that needs confidence was let through without one"
        return self._whole

    def _candidates(self) -> Floats:
        """[R, G] survival of drafts that could still be admitted, below 0 elsewhere."""
        whole = self._survival()
        return np.where(self._admitted, _CLOSED, whole) if self._lengths.any() else whole

    def _admitted_survival(self) -> float:
        return float(self._survival()[self._admitted].sum()) if self._lengths.any() else 0.0

    @property
    def _admitted(self) -> np.ndarray:
        return self._places < self._lengths[:, None]


def _probabilities(confidence: ArrayLike, proposed: Ints) -> Floats:
    """[R, G] in [0, 1]."""
    given: Floats = np.asarray(confidence, np.float64)
    rows, slots = given.shape
    assert rows == len(proposed), f"confidence has {rows} rows for {len(proposed)} requests"
    assert slots >= proposed.max(initial=0), f"confidence has {slots} slots for a block of {proposed.max(initial=0)}"
    return np.fmin(np.fmax(given, 0.0), 1.0)  # fmax takes 0 where the other is no number
