"""Rotary positions: tables once per forward, queries and keys turned together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RopeTable:
    """Cosines and signed sines of the batch's positions, [T, 1, rotary dim] each."""

    cos: Tensor
    sin: Tensor

    @staticmethod
    def from_module(cos: Tensor, sin: Tensor) -> RopeTable:
        """From what a rotary module of transformers returns, [1, T, rotary dim] each.

        The first half of the sines changes sign, so that a rotation is one swap of halves, one product and one sum.
        """
        half = sin.shape[-1] // 2
        return RopeTable(cos[0, :, None], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)[:, None])

    def rotate(self, heads: Tensor) -> Tensor:
        """Turn the first rotary dims of every head of [T, heads, d]; the rest passes through."""
        width = self.cos.shape[-1]
        if width == heads.shape[-1]:
            return self._turn(heads)
        return torch.cat([self._turn(heads[..., :width]), heads[..., width:]], -1)

    def _turn(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        swapped = torch.cat([x[..., half:], x[..., :half]], -1)
        return torch.addcmul(x * self.cos, swapped, self.sin)
