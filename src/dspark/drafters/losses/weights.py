"""How much each loss term and each slot counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark.core import InputError


@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """Factors of the loss terms.

    Attributes:
        ce: cross-entropy against the token that follows.
        kl: cross-entropy against the target's distribution (its gradient is that of the forward KL divergence).
        tv: full L1 distance of draft and target distributions (0..2).
        confidence: binary cross-entropy of the confidence head against the acceptance rate.
        balance: load-balancing loss of expert layers (1 when even); of no effect without experts.
        decay: slot j weighs exp(-j / decay).
    """

    ce: float = 0.1
    kl: float = 0.0
    tv: float = 0.9
    confidence: float = 1.0
    balance: float = 0.01
    decay: float = 4.0

    def __post_init__(self) -> None:
        for name in ("ce", "kl", "tv", "confidence", "balance"):
            if not getattr(self, name) >= 0:
                raise InputError(f"loss weight {name} must be >= 0, got {getattr(self, name)}")
        if not self.decay > 0:
            raise InputError(f"loss decay must be > 0, got {self.decay}")


def slot_weights(mask: Tensor, decay: float) -> Tensor:
    """Weights of slots: [.., G] bool -> float32, exp(-j / decay) where the slot counts and 0 elsewhere."""
    slots = torch.arange(mask.shape[-1], device=mask.device, dtype=torch.float32)
    return mask * torch.exp(-slots / decay)
