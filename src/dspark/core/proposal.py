"""What passes between a drafter and the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class DraftSampler(Protocol):
    """Draws draft tokens; given to the drafter by the engine, so that drafters know nothing of sampling rules."""

    def __call__(self, slot: int, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw one token per request.

        Args:
            slot: 0-based block slot that is being drawn.
            logits: [R, Vd] draft logits of that slot (Vd is the draft vocabulary).

        Returns:
            ids [R] int64 in the draft vocabulary, and the very probabilities they were drawn from, [R, Vd] float32
            (None when every request is greedy, then the proposal is one-hot).
        """
        ...


@dataclass(frozen=True, kw_only=True)
class DraftBatch:
    """The requests that want a block drafted this step. R requests, P pages of the longest one.

    Attributes:
        anchors: [R] int64 last committed token of each request; its target feature is not known yet.
        anchor_positions: positions of the anchors; equals the number of context positions before them.
        page_table: [R, P] int64 pages of each request in order (unused entries 0); a drafter keeps its context K/V in
            the same slots as the target does, so prefix hits, rollback and preemption carry over by themselves.
        page_size: tokens per page.
        histories: all committed token ids of each request, anchor last (for drafters that look at text); not copied.
        max_lens: how many tokens may be proposed for each request, each >= 1.
        sampler: draws the tokens.
    """

    anchors: Tensor
    anchor_positions: tuple[int, ...]
    page_table: Tensor
    page_size: int
    histories: Sequence[Sequence[int]]
    max_lens: tuple[int, ...]
    sampler: DraftSampler


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Drafted blocks, aligned with the requests of the DraftBatch. G is the longest block in it.

    Attributes:
        tokens: [R, G] int64 token ids of the target's vocabulary; entries past ``lengths[r]`` are meaningless.
        lengths: proposed tokens per request, 0 .. max_lens[r].
        probs: [R, G, Vd] float32, the very numbers each token was drawn from; None when proposals are deterministic
            (one-hot): greedy drafts, n-gram lookup.
        draft_to_target: [Vd] int64 target id of each draft-vocabulary entry; None when the vocabularies are the same.
        confidence: [R, G] float32 probability that slot j's token is accepted given that all earlier ones were, before
            calibration; None without a confidence head. Entry j depends on tokens before slot j only.
    """

    tokens: Tensor
    lengths: tuple[int, ...]
    probs: Tensor | None = None
    draft_to_target: Tensor | None = None
    confidence: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class CommittedRows:
    """Target rows that have become context for good: prefill rows, and anchor + accepted drafts of a verified block.

    Attributes:
        features: [n, m * D] tapped target features, layers concatenated in tap order; None if nothing is tapped.
        positions: [n] int64 position of each row in its request.
        kv_slots: [n] int64 slot of each row.
        token_ids: [n] int64 token of each row; the engine always gives it.
        previous_slots: [n] int64 slot of the row before each one in its text, which became context earlier or is among
            these rows (the row's own slot at position 0); the engine always gives it.
    """

    features: Tensor | None
    positions: Tensor
    kv_slots: Tensor
    token_ids: Tensor | None = None
    previous_slots: Tensor | None = None

    def take(self, index: Tensor) -> CommittedRows:
        """Some of the rows, by index [k] int64."""
        return CommittedRows(
            features=None if self.features is None else self.features[index],
            positions=self.positions[index],
            kv_slots=self.kv_slots[index],
            token_ids=None if self.token_ids is None else self.token_ids[index],
            previous_slots=None if self.previous_slots is None else self.previous_slots[index],
        )
