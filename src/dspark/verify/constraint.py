"""Rules about which tokens may follow, such as grammars, as masks over target rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dspark.core import DsparkError
from dspark.verify.faults import RowsAtFaultError


class ConstraintError(DsparkError):
    """A constraint cannot say what may follow."""


class TokenConstraint(Protocol):
    """What may follow the committed tokens of one answer. Asking changes nothing, only :meth:`commit` does."""

    def allowed(self, drafts: Sequence[int]) -> int:
        """How many leading ``drafts`` may follow one another."""
        ...

    def fill(self, drafts: Sequence[int], words: np.ndarray) -> None:
        """Say what may follow the committed tokens and each draft.

        Args:
            drafts: l tokens.
            words: [l + 1, ceil(V / 32)] int32, all bits set. Row j gets what may follow ``drafts[:j]``: token
                t in bit ``t % 32`` of word ``t // 32``; at least one. Rows behind a draft that may not follow, or that
                ends the answer, stay as they are.

        Raises:
            ConstraintError: it cannot be said.
        """
        ...

    def commit(self, tokens: Sequence[int]) -> None:
        """Append tokens, each drawn from its masked row; cannot fail."""
        ...


def mask_logits(
    logits: Tensor, constraints: Sequence[TokenConstraint | None], drafts: Sequence[Sequence[int]], *, fresh: bool
) -> Tensor:
    """Set what constraints rule out to minus infinity.

    Args:
        logits: [N, V] target rows, those of request r contiguous, ``len(drafts[r]) + 1`` of them.
        constraints: one entry per request, None for none.
        drafts: verified tokens of each request.
        fresh: whether ``logits`` may be changed.

    Returns:
        ``logits`` itself without constraints or if it may be changed, else a new tensor.

    Raises:
        RowsAtFaultError: constraints of some requests failed.
    """
    if all(constraint is None for constraint in constraints):
        return logits
    out = logits if fresh else logits.clone()
    first = 0
    faults: dict[int, str] = {}
    for place, (constraint, draft) in enumerate(zip(constraints, drafts, strict=True)):
        rows = out[first : first + len(draft) + 1]
        first += len(rows)
        if constraint is not None:
            try:
                rows.masked_fill_(_ruled_out(constraint, draft, out.shape[1]).to(out.device), -torch.inf)
            except ConstraintError as error:
                faults[place] = str(error)
    if faults:
        raise RowsAtFaultError(next(iter(faults.values())), np.array(list(faults)))
    return out


def _ruled_out(constraint: TokenConstraint, draft: Sequence[int], vocab_size: int) -> Tensor:
    """[l + 1, V] bool."""
    words = np.full((len(draft) + 1, -(-vocab_size // 32)), -1, np.int32)
    constraint.fill(draft, words)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :vocab_size]
    return torch.from_numpy(bits == 0)
