"""The law each drafted token was drawn from, as verification needs it: q of the token, and the residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dspark.core import Proposal
from dspark.verify.faults import RowsAtFaultError
from dspark.verify.rules import nonempty, residual_of_token


class DraftLaw(Protocol):
    """Law of the drafted tokens; ``request`` and ``slot`` [n] say which ones are meant."""

    def of_tokens(self, request: np.ndarray, slot: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Probability [n] with which each of ``tokens`` was drawn."""
        ...

    def residual(self, target: Tensor, request: np.ndarray, slot: np.ndarray, tokens: np.ndarray) -> Tensor:
        """Residual weights [n, V] of the warped target rows ``target`` after rejecting ``tokens``."""
        ...


class OneHotLaw:
    """Deterministic proposals."""

    def of_tokens(self, request: np.ndarray, slot: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """All ones."""
        return np.ones(len(tokens))

    def residual(self, target: Tensor, request: np.ndarray, slot: np.ndarray, tokens: np.ndarray) -> Tensor:
        """The target rows without the rejected tokens."""
        return residual_of_token(target, torch.from_numpy(tokens).to(target.device))


@dataclass(frozen=True, kw_only=True)
class DrawnLaw:
    """Proposals drawn from known probabilities, possibly over a reduced vocabulary.

    Attributes:
        probs: [R', G, Vd] of the proposal.
        rows: [R] row of ``probs`` of each judged request.
        draft_to_target: [Vd] target id of each draft entry, or None when the vocabularies are the same.
        target_to_draft: [V] draft entry of each target id, -1 for none; None with ``draft_to_target``.
    """

    probs: Tensor
    rows: np.ndarray
    draft_to_target: Tensor | None
    target_to_draft: np.ndarray | None

    def of_tokens(self, request: np.ndarray, slot: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Entries of ``probs``; 0 for a token outside the draft vocabulary. NaN there is a RowsAtFaultError."""
        entry = tokens if self.target_to_draft is None else self.target_to_draft[tokens]
        index = (self.rows[request], slot, np.maximum(entry, 0))
        found = self.probs[tuple(torch.from_numpy(i).to(self.probs.device) for i in index)].double().cpu().numpy()
        if np.isnan(found).any():
            message = "the drafter computed probabilities that are not numbers; use dtype float32"
            raise RowsAtFaultError(message, request[np.isnan(found)])
        return np.where(entry >= 0, found, 0.0)

    def residual(self, target: Tensor, request: np.ndarray, slot: np.ndarray, tokens: np.ndarray) -> Tensor:
        """max(p - q, 0), q spread over the target vocabulary."""
        flat = torch.from_numpy(self.rows[request] * self.probs.shape[1] + slot).to(self.probs.device)
        law = self.probs.flatten(0, 1).index_select(0, flat).to(target.dtype)
        if self.draft_to_target is None:
            difference = target - law
        else:
            difference = target.index_add(1, self.draft_to_target, law, alpha=-1)
        return nonempty(difference.clamp_min_(0.0), target)


def law_of(proposal: Proposal | None, rows: Sequence[int] | None, vocab_size: int) -> DraftLaw:
    """The law of a proposal; ``rows`` [R] gives the row in it of each judged request, None means r."""
    if proposal is None or proposal.probs is None:
        return OneHotLaw()
    index = np.arange(len(proposal.probs)) if rows is None else np.asarray(rows, np.int64)
    inverse = None
    if proposal.draft_to_target is not None:
        ids = proposal.draft_to_target.cpu().numpy()
        inverse = np.full(vocab_size, -1, np.int64)
        inverse[ids] = np.arange(len(ids))
    return DrawnLaw(probs=proposal.probs, rows=index, draft_to_target=proposal.draft_to_target, target_to_draft=inverse)
