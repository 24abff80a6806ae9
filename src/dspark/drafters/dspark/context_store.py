"""Keys and values of the committed context of every draft layer, in the same page slots as the target's cache.

Legend: L draft layers, K key/value heads, E head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.drafters.dspark.config import DSparkConfig


class ContextStore:
    """One tensor [L, 2, K, pages, page_size, E]: gathering whole pages gives product-ready keys and values."""

    def __init__(
        self, config: DSparkConfig, num_pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, num_pages, page_size, config.head_dim)
        self.pages = torch.zeros(shape, dtype=dtype, device=device)
        self._work = self.pages.new_empty(0)

    @property
    def page_size(self) -> int:
        """Tokens per page."""
        return self.pages.shape[4]

    def write(self, keys_values: Tensor, slots: Tensor) -> None:
        """Store [L, 2, K, n, E] at the slots [n] int64."""
        self.pages.flatten(3, 4).index_copy_(3, slots, keys_values)

    def gather(self, layer: int, pages: Tensor) -> Tensor:
        """Copy pages [p] int64 of one layer: [2, K, p * page_size, E], valid until the next call."""
        source = self.pages[layer]
        shape = (*source.shape[:2], len(pages), *source.shape[3:])
        count = torch.Size(shape).numel()
        if self._work.numel() < count:
            self._work = source.new_empty(count)
        target = self._work[:count].view(shape)
        torch.index_select(source, 2, pages, out=target)
        return target.flatten(2, 3)
