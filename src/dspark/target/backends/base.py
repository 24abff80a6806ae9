"""What a backend must offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dspark.core import PackedBatch


@dataclass(frozen=True, kw_only=True)
class KVShape:
    """Sizes of attention, and how keys and values are held."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


def lasting(sizes: tuple[int, ...], shape: KVShape) -> Tensor:
    """Zeros that may be written in and out of inference mode, wherever they are made."""
    with torch.inference_mode(False):
        return torch.zeros(sizes, dtype=shape.dtype, device=shape.device)


@dataclass(frozen=True, kw_only=True)
class AttentionRule:
    """How one layer attends.

    Attributes:
        scale: factor on the scores.
        window: keys a row sees counting itself, None without a limit.
        softcap: scores become ``softcap * tanh(score / softcap)``, None without.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None


class AttentionBackend(Protocol):
    """A paged key/value store and the attention over it.

    Legend: T rows of the batch, H query heads, K key/value heads, d size of a head.
    """

    page_size: int

    def allocate(self, num_pages: int) -> None:
        """Make room for that many pages in every layer; earlier contents are lost."""
        ...

    def plan(self, batch: PackedBatch) -> Any:
        """Everything about the batch that all layers share; made once per forward."""
        ...

    def attend(self, plan: Any, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule) -> Tensor:
        """Store keys and values of all rows, then attend.

        Args:
            plan: what :meth:`plan` returned for this batch.
            layer: layer index.
            query: [T, H, d] after RoPE.
            key: [T, K, d] after RoPE.
            value: [T, K, d].
            rule: how this layer attends.

        Returns:
            [T, H * d].
        """
        ...
