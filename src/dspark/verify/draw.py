"""Inverse-CDF draws from given uniforms that can never return a token of probability zero."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_CHUNK = 256
"""Tokens per chunk: first a chunk is drawn, then a token in it, so that no row-long cumulative sum is needed."""


def draw(weights: Tensor, uniforms: np.ndarray) -> Tensor:
    """Draw one token per row with probability proportional to its weight.

    The cumulative weights (float64) are walked in token order: uniform 0 gives the first token of positive weight.

    Args:
        weights: [R, V] >= 0, not all zero in any row; need not sum to one.
        uniforms: [R] in [0, 1).

    Returns:
        [R] int64 tokens, each of positive weight.
    """
    pad = -weights.shape[1] % _CHUNK
    chunks = (F.pad(weights, (0, pad)) if pad else weights).reshape(len(weights), -1, _CHUNK)
    point = torch.from_numpy(uniforms).to(weights.device)[:, None]
    chunk, rest = _pick(chunks.sum(-1), point)
    token, _ = _pick(chunks.gather(1, chunk[:, :, None].expand(-1, -1, _CHUNK))[:, 0], rest)
    return (chunk * _CHUNK + token)[:, 0]


def _pick(weights: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """Index [R, 1] of the weight that ``point`` [R, 1] in [0, 1) of the total falls on, and where in it, in [0, 1)."""
    ends = weights.cumsum(1, dtype=torch.float64)
    goal = point * ends[:, -1:]
    index = torch.searchsorted(ends, goal, right=True).clamp_max_(weights.shape[1] - 1)
    index = torch.where(weights.gather(1, index) > 0, index, weights.argmax(1, keepdim=True))
    size = weights.gather(1, index)
    inside = (goal - ends.gather(1, index)) / size + 1.0
    return index, inside.clamp_(0.0, 1.0 - 2.0**-53)
