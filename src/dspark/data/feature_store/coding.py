"""How features are held on disk: bfloat16, or eight bits with a scale per dimension.

Raw features are badly conditioned: a few dimensions of a few tokens reach thousands where all others stay below ten,
and layers differ. One scale for all would drown the rest, so every dimension has its own. Last hidden states are always
bfloat16: they make the teacher's distribution, and are a small part of a store.

Legend: n tokens, W numbers per token.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
_LARGEST = 448.0  # of float8_e4m3fn


class FeatureCoding(StrEnum):
    """Type of the features in a store.

    ``fp8`` is float8_e4m3fn, three bits behind the point: a number is off by at most 1/16 of itself, or by 2^-17 of the
    largest of its dimension in the shard if that is more.
    """

    BF16 = "bf16"
    FP8 = "fp8"

    @property
    def dtype(self) -> torch.dtype:
        """The type of the array in the file."""
        return FP8 if self is FeatureCoding.FP8 else torch.bfloat16


def dimension_scale(pieces: Iterable[Tensor]) -> Tensor:
    """Scale [W] float32 by which pieces [n, W] must be divided to fit into eight bits.

    It is a power of two, so that neither dividing nor multiplying rounds.
    """
    largest = torch.stack([piece.float().abs().amax(dim=0) for piece in pieces]).amax(dim=0)
    _, exponent = torch.frexp(largest / _LARGEST)
    return torch.ldexp(torch.ones_like(largest), exponent)


def encode(piece: Tensor, scale: Tensor | None) -> Tensor:
    """Features [n, W] as they are stored: bfloat16 without a scale [W], else float8."""
    return piece.to(torch.bfloat16) if scale is None else (piece.float() / scale).to(FP8)


def decode(raw: np.ndarray, scale: Tensor | None) -> Tensor:
    """Stored features [n, W], as raw integers in memory -> bfloat16."""
    stored = torch.from_numpy(raw)
    if scale is None:
        return stored.view(torch.bfloat16)
    return stored.view(FP8).to(torch.bfloat16).mul_(scale.to(torch.bfloat16))
