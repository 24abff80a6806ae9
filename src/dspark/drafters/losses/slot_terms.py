"""Loss terms of a chunk of slots and their gradient, in few passes over the vocabulary and in memory used again.

Legend: c slots, Vd draft vocabulary; p draft and q target probabilities.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dspark.drafters.losses.weights import LossWeights


class SlotTerms(NamedTuple):
    """Unweighted loss terms of each slot, [n] float32; ``accept`` is 1 - L1 / 2, ``hit`` is argmax == label."""

    ce: Tensor
    kl: Tensor
    tv: Tensor
    accept: Tensor
    hit: Tensor


def chunk_terms(
    logits: Tensor, target: Tensor, labels: Tensor, factors: LossWeights, work: tuple[Tensor, Tensor]
) -> tuple[SlotTerms, Tensor]:
    """Loss terms of some slots, and what their gradient is made of.

    Args:
        logits: [c, Vd] float32 draft logits; overwritten.
        target: [c, Vd] float32 q; sums to less than one where the draft vocabulary is a reduced one.
        labels: [c] int64 entry of the true next token, -1 where it has none.
        factors: factors of the terms.
        work: two float32 buffers [c, Vd].

    Returns:
        the terms, [c] each, and the gradient of the sum of the slots' terms by the logits, [c, Vd] float32, which lives
        in ``work``.
    """
    draft, spare = work
    torch.softmax(logits, dim=-1, out=draft)
    peak, best = logits.max(dim=-1)
    log_z = peak - draft.amax(dim=-1).log()  # of the draft: its likeliest token is the one at the peak
    known = (labels >= 0).float()
    picked = labels.clamp_min(0)[:, None]
    ce = (log_z - logits.gather(1, picked)[:, 0]) * known
    inside = target.sum(dim=-1)
    kl = inside * log_z - _dot(target, logits, spare)
    sign = torch.sub(draft, target, out=logits).sign_()
    leaning = _dot(draft, sign, spare)  # sum |p - q| = <p, sign> - <q, sign>
    tv = leaning - _dot(target, sign, spare) + (1 - inside).clamp_min(0)
    terms = SlotTerms(ce, kl, tv, (1 - tv / 2).clamp(0, 1), (best == labels).float())
    # d ce = p - onehot; d kl = sum(q) p - q; d tv = p (sign - <p, sign>)
    scale = factors.ce * known + factors.kl * inside - factors.tv * leaning
    grad = draft.mul_(sign.mul_(factors.tv).add_(scale[:, None])).sub_(target, alpha=factors.kl)
    return terms, grad.scatter_add_(1, picked, -(factors.ce * known)[:, None])


def _dot(a: Tensor, b: Tensor, spare: Tensor) -> Tensor:
    """Row by row inner products: [c, Vd], [c, Vd] -> [c]."""
    return torch.mul(a, b, out=spare).sum(dim=-1)
