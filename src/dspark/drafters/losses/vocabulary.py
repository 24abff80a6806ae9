"""Losses over the vocabulary, fused with the projection to it (DSpark paper section 3).

The logits of all slots would fill several [slots, Vd] float32 tensors. Here slots go in chunks that leave only their
gradients behind, so peak memory is a few chunks. Slots go in the order of their teacher positions: neighbouring slots
of different blocks are taught by the same position, whose logits are computed once.
Legend: n slots, U teacher positions, D hidden, r rank, Vd draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dspark.drafters.losses.slot_terms import SlotTerms, chunk_terms
from dspark.drafters.losses.weights import LossWeights

CHUNK_ROWS = 128


class Teacher(NamedTuple):
    """The target's side of the slots.

    Attributes:
        hidden: [U, D] last hidden states (after the final norm) of the positions that predict slots' tokens.
        labels: [n] int64 the token that follows, as an entry of the draft vocabulary; -1 where it is not in it.
        log_z: [U] float32 log of the target's softmax denominator over its full vocabulary, soft-cap included; None
            when the draft vocabulary is the full one.
        rows: [n] int64 position, among the U, of each slot; None when slot i is taught by position i.
    """

    hidden: Tensor
    labels: Tensor
    log_z: Tensor | None
    rows: Tensor | None = None


def vocabulary_loss(
    hidden: Tensor,
    code: Tensor | None,
    lm_head: Tensor,
    w2: Tensor | None,
    teacher: Teacher,
    weights: Tensor,
    factors: LossWeights,
    *,
    softcap: float | None = None,
) -> tuple[Tensor, SlotTerms]:
    """Weighted sum of the vocabulary terms, with gradients for hidden, code and w2.

    Args:
        hidden: [n, D] final hidden states of the slots.
        code: [n, r] codes of the sequential head; None without one.
        lm_head: [Vd, D] the target's head, rows of the draft vocabulary; frozen.
        w2: [Vd, r] output factor of the sequential head; None without one.
        teacher: the target's side.
        weights: [n] slot weights.
        factors: factors of the terms.
        softcap: the target's soft-cap on final logits: base and teacher logits become ``cap * tanh(logits / cap)``. The
            sequential head's bias is added to the capped logits, as in serving.

    Returns:
        scalar sum_i weights_i (ce + kl + tv terms with their factors), and the terms of each slot (no gradient).
    """
    if code is None or w2 is None:
        code, w2 = hidden.new_zeros(hidden.shape[0], 0), hidden.new_zeros(lm_head.shape[0], 0)
    rows = torch.arange(hidden.shape[0], device=hidden.device) if teacher.rows is None else teacher.rows
    fixed = _Fixed(lm_head, softcap, teacher._replace(rows=rows), weights, factors)
    total, *terms = _VocabularyLoss.apply(hidden, code, w2, fixed)
    return total, SlotTerms(*terms)


class _Fixed(NamedTuple):
    """What gets no gradient."""

    lm_head: Tensor
    softcap: float | None
    teacher: Teacher
    weights: Tensor
    factors: LossWeights


class _Chunks:
    """The slots in chunks, in the order of their teacher positions, and the memory that all chunks share."""

    def __init__(self, hidden: Tensor, fixed: _Fixed) -> None:
        self._fixed = fixed
        assert fixed.teacher.rows is not None
        self._teacher_rows, self._slots = fixed.teacher.rows.sort()
        shape = (min(CHUNK_ROWS, hidden.shape[0]), fixed.lm_head.shape[0])
        self._wide = torch.empty(4, *shape, dtype=torch.float32, device=hidden.device)
        self._narrow = hidden.new_empty(shape)
        self._slope = None if fixed.softcap is None else torch.empty_like(self._wide[0])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Slots [c] int64 of each chunk, and their teacher positions [c], ascending."""
        return zip(self._slots.split(CHUNK_ROWS), self._teacher_rows.split(CHUNK_ROWS), strict=True)

    def work(self, count: int) -> tuple[Tensor, Tensor]:
        """Two float32 buffers [count, Vd]."""
        return self._wide[2, :count], self._wide[3, :count]

    def draft_logits(self, hidden: Tensor, codes: Tensor, w2: Tensor) -> Tensor:
        """Capped base logits of [c, D] plus the head's bias: [c, Vd] float32."""
        logits = self._project(hidden, self._fixed.lm_head, self._wide[0])
        self._cap(logits, self._slope)
        return logits.add_(torch.mm(codes, w2.T, out=self._narrow[: len(codes)])) if codes.shape[1] else logits

    def target_probs(self, rows: Tensor) -> Tensor:
        """Probabilities [c, Vd] float32 under the target's full softmax at teacher positions [c], ascending."""
        teacher = self._fixed.teacher
        distinct, places = torch.unique_consecutive(rows, return_inverse=True)  # type: ignore[no-untyped-call]
        repeated = len(distinct) < len(rows)
        logits = self._project(teacher.hidden[distinct], self._fixed.lm_head, self._wide[3])
        self._cap(logits)
        probs = self._wide[2 if repeated else 1, : len(distinct)]
        if teacher.log_z is None:
            torch.softmax(logits, dim=-1, out=probs)
        else:
            torch.sub(logits, teacher.log_z[distinct, None], out=probs).exp_()
        return torch.index_select(probs, 0, places, out=self._wide[1, : len(rows)]) if repeated else probs

    def gradients(self, grad: Tensor, codes: Tensor, w2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients for hidden [c, D], codes [c, r] and w2 [Vd, r] from the one for the logits, [c, Vd]."""
        narrow = self._narrow[: len(grad)].copy_(grad)
        grad_codes, grad_w2 = narrow @ w2, narrow.T @ codes
        if self._slope is not None:
            narrow.copy_(grad.mul_(self._slope[: len(grad)]))
        return narrow @ self._fixed.lm_head, grad_codes, grad_w2

    def _project(self, hidden: Tensor, matrix: Tensor, out: Tensor) -> Tensor:
        """Product in the compute dtype, brought to float32 in ``out``."""
        return out[: len(hidden)].copy_(torch.mm(hidden, matrix.T, out=self._narrow[: len(hidden)]))

    def _cap(self, logits: Tensor, slope: Tensor | None = None) -> None:
        """Soft-cap in place; ``slope`` takes the derivative, 1 - tanh^2."""
        cap = self._fixed.softcap
        if cap is None:
            return
        logits.div_(cap).tanh_()
        if slope is not None:
            torch.mul(logits, logits, out=slope[: len(logits)]).neg_().add_(1)
        logits.mul_(cap)


class _VocabularyLoss(torch.autograd.Function):
    """Computes gradients chunk by chunk during the forward; the backward only scales them."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, code: Tensor, w2: Tensor, fixed: _Fixed) -> tuple[Tensor, ...]:
        """Run all chunks; see vocabulary_loss."""
        with torch.autocast(hidden.device.type, enabled=False):
            return _VocabularyLoss._run(ctx, hidden, code, w2, fixed)

    @staticmethod
    def _run(ctx: Any, hidden: Tensor, code: Tensor, w2: Tensor, fixed: _Fixed) -> tuple[Tensor, ...]:
        grad_hidden, grad_code = torch.empty_like(hidden), torch.empty_like(code)
        grad_w2 = torch.zeros_like(w2, dtype=torch.float32)
        narrow_w2 = w2.to(hidden.dtype)
        terms = torch.empty(len(SlotTerms._fields), hidden.shape[0], device=hidden.device)
        chunks, factors = _Chunks(hidden, fixed), fixed.factors
        for slots, rows in chunks:
            codes = code[slots]
            target = chunks.target_probs(rows)
            logits = chunks.draft_logits(hidden[slots], codes, narrow_w2)
            chunk, grad = chunk_terms(logits, target, fixed.teacher.labels[slots], factors, chunks.work(len(slots)))
            terms[:, slots] = torch.stack(chunk)
            if ctx.needs_input_grad[0]:
                grad.mul_(fixed.weights[slots, None])
                grad_hidden[slots], grad_code[slots], part = chunks.gradients(grad, codes, narrow_w2)
                grad_w2 += part
        ctx.save_for_backward(grad_hidden, grad_code, grad_w2.to(w2.dtype))
        joined = SlotTerms(*terms)
        total = (fixed.weights * (factors.ce * joined.ce + factors.kl * joined.kl + factors.tv * joined.tv)).sum()
        ctx.mark_non_differentiable(*joined)
        return total, *joined

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the stored gradients."""
        grad_hidden, grad_code, grad_w2 = ctx.saved_tensors
        return grad_hidden * grad_total, grad_code * grad_total, grad_w2 * grad_total, None
