"""Losses over the vocabulary, fused with the projection to it (DSpark paper section 3).

The logits of all slots would fill several [slots, V] float32 tensors; here rows go in chunks that leave only their
gradients behind, so peak memory is a few chunks. Legend: n slots, D hidden, r rank, Vd draft vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dspark.drafters.losses.weights import LossWeights

CHUNK_ROWS = 128


class Teacher(NamedTuple):
    """The target's side of each slot.

    Attributes:
        hidden: [n, D] last hidden state (after the final norm) at the position that predicts the slot's token.
        labels: [n] int64 the token that follows, as an entry of the draft vocabulary; -1 where it is not in it.
        log_z: [n] float32 log of the target's softmax denominator over its full vocabulary; None when the draft
            vocabulary is the full one.
    """

    hidden: Tensor
    labels: Tensor
    log_z: Tensor | None


class SlotTerms(NamedTuple):
    """Unweighted loss terms of each slot, [n] float32; ``accept`` is 1 - L1 / 2, ``hit`` is argmax == label."""

    ce: Tensor
    kl: Tensor
    tv: Tensor
    accept: Tensor
    hit: Tensor


def vocabulary_loss(
    hidden: Tensor,
    code: Tensor | None,
    lm_head: Tensor,
    w2: Tensor | None,
    teacher: Teacher,
    weights: Tensor,
    factors: LossWeights,
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

    Returns:
        scalar sum_i weights_i (ce + kl + tv terms with their factors), and the terms of each slot (no gradient).
    """
    if code is None or w2 is None:
        code, w2 = hidden.new_zeros(hidden.shape[0], 0), hidden.new_zeros(lm_head.shape[0], 0)
    total, *terms = _VocabularyLoss.apply(hidden, code, lm_head, w2, *teacher, weights, factors)
    return total, SlotTerms(*terms)


class _VocabularyLoss(torch.autograd.Function):
    """Computes gradients chunk by chunk during the forward; the backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        code: Tensor,
        lm_head: Tensor,
        w2: Tensor,
        teacher_hidden: Tensor,
        labels: Tensor,
        log_z: Tensor | None,
        weights: Tensor,
        factors: LossWeights,
    ) -> tuple[Tensor, ...]:
        """Run all chunks; see vocabulary_loss."""
        grad_hidden, grad_code = torch.empty_like(hidden), torch.empty_like(code)
        grad_w2 = torch.zeros_like(w2, dtype=torch.float32)
        w2_cast = w2.to(hidden.dtype)
        terms = []
        for start in range(0, hidden.shape[0], CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            logits = (hidden[rows] @ lm_head.T).float() + (code[rows] @ w2_cast.T).float()
            target = (teacher_hidden[rows] @ lm_head.T).float()
            target = _target_probabilities(target, None if log_z is None else log_z[rows])
            chunk, grad = _chunk_terms(logits, target, labels[rows], factors)
            terms.append(chunk)
            grad = grad.mul_(weights[rows, None]).to(hidden.dtype)
            grad_hidden[rows] = grad @ lm_head
            grad_code[rows] = grad @ w2_cast
            grad_w2 += (grad.T @ code[rows]).float()
        ctx.save_for_backward(grad_hidden, grad_code, grad_w2.to(w2.dtype))
        joined = SlotTerms(*(torch.cat(parts) for parts in zip(*terms, strict=True)))
        total = (weights * (factors.ce * joined.ce + factors.kl * joined.kl + factors.tv * joined.tv)).sum()
        ctx.mark_non_differentiable(*joined)
        return total, *joined

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the stored gradients."""
        grad_hidden, grad_code, grad_w2 = ctx.saved_tensors
        return (
            grad_hidden * grad_total,
            grad_code * grad_total,
            None,
            grad_w2 * grad_total,
            None,
            None,
            None,
            None,
            None,
        )


def _target_probabilities(logits: Tensor, log_z: Tensor | None) -> Tensor:
    """Probabilities of the draft vocabulary's tokens under the target's full softmax; overwrites ``logits``."""
    if log_z is None:
        log_z = torch.logsumexp(logits, dim=-1)
    return logits.sub_(log_z[:, None]).exp_()


def _chunk_terms(logits: Tensor, target: Tensor, labels: Tensor, factors: LossWeights) -> tuple[SlotTerms, Tensor]:
    """Loss terms of some slots and the gradient of their weighted sum by the logits [c, Vd]."""
    hit = logits.argmax(dim=-1) == labels
    log_draft = logits.sub_(torch.logsumexp(logits, dim=-1, keepdim=True))
    draft = log_draft.exp()
    known = (labels >= 0).float()
    picked = labels.clamp_min(0)[:, None]
    ce = -log_draft.gather(1, picked)[:, 0] * known
    kl = -(target * log_draft).sum(dim=-1)
    inside = target.sum(dim=-1)
    difference = draft - target
    tv = difference.abs().sum(dim=-1) + (1 - inside).clamp_min(0)
    sign = difference.sign_()
    # d ce = draft - onehot; d kl = inside * draft - target; d tv = draft * (sign - <draft, sign>)
    scale = factors.ce * known + factors.kl * inside - factors.tv * (draft * sign).sum(dim=-1)
    grad = draft.mul_(sign.mul_(factors.tv).add_(scale[:, None])).sub_(target, alpha=factors.kl)
    grad.scatter_add_(1, picked, -(factors.ce * known)[:, None])
    return SlotTerms(ce, kl, tv, (1 - tv / 2).clamp(0, 1), hit.float()), grad
