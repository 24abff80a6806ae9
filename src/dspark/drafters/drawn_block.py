"""A block while it is drawn, token after token."""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.core import Proposal


class DrawnBlock:
    """Collects what a sampler draws and turns it into a proposal.

    Legend: R requests, G tokens drawn so far, Vd draft vocabulary.
    """

    def __init__(self, draft_to_target: Tensor | None) -> None:
        """Begin; ``draft_to_target`` [Vd] int64 maps draft-vocabulary entries to target ids, None for equal ones."""
        self._draft_to_target = draft_to_target
        self._tokens: list[Tensor] = []
        self._probs: list[Tensor | None] = []

    def take(self, drawn: Tensor, drawn_from: Tensor | None) -> Tensor:
        """Add one token per request, [R] draft ids and their probabilities [R, Vd]; returns the target ids [R]."""
        ids = drawn if self._draft_to_target is None else self._draft_to_target.index_select(0, drawn)
        self._tokens.append(ids)
        self._probs.append(drawn_from)
        return ids

    def proposal(self, lengths: tuple[int, ...], confidence: Tensor | None = None) -> Proposal:
        """The proposal of these lengths, with confidences [R, G] if there are any."""
        return Proposal(
            tokens=torch.stack(self._tokens, dim=1),
            lengths=lengths,
            probs=self._stacked_probs(),
            draft_to_target=self._draft_to_target,
            confidence=confidence,
        )

    def _stacked_probs(self) -> Tensor | None:
        """[R, G, Vd]; None when the sampler gave none."""
        given = [probs for probs in self._probs if probs is not None]
        assert len(given) in (0, len(self._probs)), "a sampler gives probabilities for all slots or for none"
        return torch.stack(given, dim=1) if given else None
