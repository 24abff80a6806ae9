"""The vocabulary loss without chunks, without hand-written gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.drafters.losses import LossWeights, SlotTerms, Teacher


def dense_vocabulary_loss(
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
    """All logits at once, gradients by autograd; in float32 at least. Arguments as for the real one."""
    wide = torch.float64 if hidden.dtype is torch.float64 else torch.float32
    rows = torch.arange(len(hidden)) if teacher.rows is None else teacher.rows
    logits, target = (capped((x @ lm_head.T).to(wide), softcap) for x in (hidden, teacher.hidden[rows]))
    if code is not None and w2 is not None:
        logits = logits + (code @ w2.to(code.dtype).T).to(wide)
    log_z = torch.logsumexp(target, -1) if teacher.log_z is None else teacher.log_z[rows]
    target = (target - log_z[:, None]).exp()
    draft = torch.log_softmax(logits, -1)
    ce = -draft.gather(1, teacher.labels.clamp_min(0)[:, None])[:, 0] * (teacher.labels >= 0)
    kl = -(target * draft).sum(-1)
    tv = (draft.exp() - target).abs().sum(-1) + (1 - target.sum(-1)).clamp_min(0)
    loss = (weights * (factors.ce * ce + factors.kl * kl + factors.tv * tv)).sum()
    hit = (logits.argmax(-1) == teacher.labels).to(wide)
    return loss, SlotTerms(*(term.detach().float() for term in (ce, kl, tv, (1 - tv / 2).clamp(0, 1), hit)))


def capped(logits: Tensor, softcap: float | None) -> Tensor:
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)
