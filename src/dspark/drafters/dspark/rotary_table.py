"""Rotary embedding by table lookup, for serving."""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.drafters.dspark.backbone import Rotary
from dspark.drafters.dspark.config import DSparkConfig


class RotaryTable:
    """Cosines and sines of every position, computed in float32 once and kept in the drafter's dtype.

    A rotation is ``x * cos + swapped(x) * sin``, where ``swapped`` exchanges the halves of each head and the sine
    carries the sign. E is the head size.
    """

    def __init__(self, config: DSparkConfig, num_positions: int, dtype: torch.dtype, device: torch.device) -> None:
        cos, sin = Rotary(config).tables(torch.arange(num_positions, device=device), torch.float32)
        self._half = config.head_dim // 2
        sin[..., : self._half].neg_()
        self._cos, self._sin = cos.to(dtype), sin.to(dtype)  # [positions, 1, E]

    def at(self, positions: Tensor) -> RotaryRows:
        """The rotation of rows at the positions [n] int64."""
        return RotaryRows(self._cos.index_select(0, positions), self._sin.index_select(0, positions), self._half)


class RotaryRows:
    """Rotation of n rows, each at its own position."""

    def __init__(self, cos: Tensor, sin: Tensor, half: int) -> None:
        self._cos, self._sin, self._half = cos, sin, half

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate [n, heads, E]."""
        return torch.addcmul(x * self._cos, x.roll(self._half, -1), self._sin)
