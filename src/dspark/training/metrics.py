"""Acceptance estimates from teacher-forced slot terms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """How many tokens a round would commit, estimated without running the engine.

    Attributes:
        tau: mean over blocks of 1 + sum_j prod_{i<=j} a_i.
        conditional: acceptance at each slot, given that all earlier ones were accepted.
        blocks: number of blocks behind the means.
    """

    tau: float
    conditional: tuple[float, ...]
    blocks: int


def acceptance(rates: Tensor, mask: Tensor) -> Acceptance:
    """Estimate acceptance.

    Args:
        rates: [b, G] acceptance probability of each slot: 1 - L1/2 for sampling, 0 or 1 (draft argmax equals the
            target's token) for greedy decoding.
        mask: [b, G] bool contiguous prefix of slots that count; blocks without any are left out.

    Returns:
        the estimate; slots that do not count contribute nothing.
    """
    counted = mask[:, 0]
    rates, mask = (rates * mask)[counted].double(), mask[counted]
    survival = torch.cumprod(rates, dim=1)
    before = torch.cat([torch.ones_like(survival[:, :1]), survival[:, :-1]], dim=1) * mask
    conditional = survival.sum(0) / before.sum(0).clamp_min(1e-12)
    tau = 1 + survival.sum(1).mean() if len(survival) else torch.tensor(1.0)
    return Acceptance(tau=float(tau), conditional=tuple(conditional.tolist()), blocks=len(survival))
