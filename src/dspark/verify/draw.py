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

    The cumulative weights are walked in token order: uniform 0 gives the first token of positive weight, uniforms just
    under 1 the last one. Cumulative sums are float64.

    Args:
        weights: [R, V] >= 0, not all zero in any row; need not sum to one.
        uniforms: [R] in [0, 1).

    Returns:
        [R] int64 tokens, each of positive weight.
    """
    pad = -weights.shape[1] % _CHUNK
    chunks = F.pad(weights, (0, pad)).unflatten(1, (-1, _CHUNK))
    point = torch.from_numpy(uniforms).to(weights.device, torch.float64)
    chunk, rest = _pick(chunks.sum(-1), point)
    token, _ = _pick(chunks[torch.arange(len(chunk), device=chunk.device), chunk], rest)
    return chunk * _CHUNK + token


def _pick(weights: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the weight that ``point`` [R] in [0, 1) of the total falls on, and where in it, again in [0, 1)."""
    ends = weights.cumsum(1, dtype=torch.float64)
    goal = point * ends[:, -1]
    positive = weights > 0
    hit = positive & (ends > goal[:, None])
    last = positive.shape[1] - 1 - positive.flip(1).byte().argmax(1)
    index = torch.where(hit.any(1), hit.byte().argmax(1), last)
    at = index[:, None]
    size = weights.gather(1, at)[:, 0].double()
    inside = (goal - (ends.gather(1, at)[:, 0] - size)) / size
    return index, inside.clamp(0.0, 1.0 - 2.0**-53)
