"""Keys and values of the committed context of every draft layer, in the same page slots as the target's cache.

Legend: L draft layers, K key/value heads, E head size, R requests, P pages per request, S = P * page_size keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.drafters.dspark.config import DSparkConfig


class ContextStore:
    """One tensor [L, 2, K, pages, page_size, E]: gathering whole pages gives attention-ready keys and values."""

    def __init__(
        self, config: DSparkConfig, num_pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, num_pages, page_size, config.head_dim)
        self.pages = torch.zeros(shape, dtype=dtype, device=device)
        self.page_size = page_size

    def write(self, keys_values: Tensor, slots: Tensor) -> None:
        """Store [L, 2, K, n, E] at the slots [n] int64."""
        self.pages.flatten(3, 4).index_copy_(3, slots, keys_values)

    def gather(self, layer: int, pages: Tensor) -> Tensor:
        """Copy the pages [R * P] int64 of one layer: [2, K, R * S, E], request after request."""
        return self.pages[layer].index_select(2, pages).flatten(2, 3)
