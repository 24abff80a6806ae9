"""The rejection rule of speculative sampling (Leviathan et al. 2023; Chen et al. 2023) as two formulas."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def acceptance(target: np.ndarray, draft: np.ndarray) -> np.ndarray:
    """Probability that a drafted token is accepted: min(1, p / q).

    Args:
        target: [n] p of each drafted token under the warped target row.
        draft: [n] q of the same tokens under the law they were drawn from; 1 for deterministic proposals.

    Returns:
        [n] float64. A token the target gives zero is never accepted, one only the draft gives zero always is; a token
        is accepted when its uniform in [0, 1) lies strictly below this.
    """
    target, draft = np.asarray(target, np.float64), np.asarray(draft, np.float64)
    ratio = np.divide(target, draft, out=np.ones_like(target), where=draft > target)
    return np.where(target > 0.0, ratio, 0.0)


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """Weights of the token that replaces a rejected one: max(p - q, 0), or p where that is empty.

    The difference is empty only where p equals q, and there a rejection has probability zero up to rounding.

    Args:
        target: [R, V] warped target rows.
        draft: [R, V] the laws the rejected tokens were drawn from.

    Returns:
        [R, V] weights, not normalised.
    """
    return nonempty((target - draft).clamp_min_(0.0), target)


def residual_of_token(target: Tensor, tokens: Tensor) -> Tensor:
    """The same for deterministic proposals: p without the rejected token ``tokens`` [R] (q is one-hot)."""
    return nonempty(target.scatter(1, tokens[:, None], 0.0), target)


def nonempty(weights: Tensor, fallback: Tensor) -> Tensor:
    """``weights`` [R, V], with rows of ``fallback`` where all weights are zero."""
    empty = weights.amax(1, keepdim=True) <= 0.0
    return torch.where(empty, fallback, weights) if bool(empty.any()) else weights
