"""What the engine tells a policy: before a step, and after it. Never a confidence of the step that is being planned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LAG = 2
"""A step is planned from steps at least this much older, so that it can be planned while the one before it runs."""


@dataclass(frozen=True, kw_only=True)
class StepView:
    """A step before anything is drafted. R requests that decode in it.

    Attributes:
        step: number of the step; rises by one from step to step of the engine, whatever is in them.
        slots: [R] place of each request in the policy's tables, below the number of slots it was made for.
        generations: [R] a number that no two requests share; a slot with another one than before starts afresh.
        limits: [R] most drafts of each request, 0 where it can use none; at most the block size.
        num_prefill_rows: target rows of prefill chunks.
        context: mean number of keys that a target row of the step sees.
    """

    step: int
    slots: Ints
    generations: Ints
    limits: Ints
    num_prefill_rows: int = 0
    context: float = 0.0

    def __post_init__(self) -> None:
        shapes = {self.slots.shape, self.generations.shape, self.limits.shape}
        assert shapes == {(len(self.slots),)}, f"slots, generations and limits must be [R], got {shapes}"

    @property
    def num_requests(self) -> int:
        """R."""
        return len(self.slots)

    @property
    def base_rows(self) -> int:
        """Target rows before any draft: an anchor each, and prefill."""
        return self.num_requests + self.num_prefill_rows


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """A step after it was judged. R requests that decoded in it, none if it was prefill alone; G slots of a block.

    Attributes:
        step, slots, generations: of its :class:`StepView`.
        proposed: [R] drafted tokens.
        verified: [R] drafts the target looked at, not counting those behind a token that ended the answer, but one that
            a constraint ruled out in its stead: it was rejected, though it cost no row.
        accepted: [R] drafts that were kept, at most ``verified``.
        stated: [R, G] what ``Reveal.close`` of the step gave: survivals that the confidence head stated, below 0 where
            nothing was proposed; None without a confidence head.
        rows: target rows B of the step.
        context: mean number of keys that a row saw.
        verify_seconds: of the step, without drafting; 0 if it was not timed.
        draft_seconds: of drafting and the upkeep of its context; 0 if it was not timed.
    """

    step: int
    slots: Ints
    generations: Ints
    proposed: Ints
    verified: Ints
    accepted: Ints
    stated: Floats | None = None
    rows: int = 0
    context: float = 0.0
    verify_seconds: float = 0.0
    draft_seconds: float = 0.0

    def __post_init__(self) -> None:
        assert (self.accepted <= self.verified).all(), "more was kept than looked at"
        assert (self.verified <= self.proposed).all(), "more was looked at than drafted"

    @property
    def num_drafting(self) -> int:
        """Requests that drafted."""
        return int((self.proposed > 0).sum())

    @property
    def block(self) -> int:
        """Longest drafted block."""
        return int(self.proposed.max(initial=0))
