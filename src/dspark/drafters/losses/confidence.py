"""The loss of confidence heads."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def confidence_loss(logits: Tensor, accept: Tensor, weights: Tensor) -> Tensor:
    """Binary cross-entropy of confidence logits [n] against acceptance rates [n], weighted by [n], summed."""
    terms = F.binary_cross_entropy_with_logits(logits.float(), accept.detach(), reduction="none")
    return (terms * weights).sum()
