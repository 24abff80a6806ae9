"""Where everything of one drafting step lies: which pages to gather, where each block goes, what is not seen.

Requests are taken in order of context length and cut into tiles. A tile's context is gathered in one go, every request
padded to the longest of the tile; tiles are small, so that the gathered keys are still in the processor's cache when
they are used. With a sliding window, pages that lie wholly before a block's window are not gathered.
Legend: R requests, n requests of a tile, G block slots, S gathered keys per request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark.drafters.dspark.config import DSparkConfig

_TILE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Neighbouring requests of the sorted batch whose context is gathered together.

    Attributes:
        requests: the requests, as a range of the sorted batch.
        block_rows: their block slots, as a range of its R * G slots.
        pages: [n * S / page_size] int64 pages to gather.
        own: [n * G] int64 index of each block slot among the n * S gathered keys: right behind the context. Key 0 of
            a request is the first of its first gathered page.
        unused: int64 indices of the gathered keys past each block; they may hold anything, even NaN.
        first_biased: keys before this index are seen by every slot of the tile.
        bias: [n, 1, 1 or G, S - first_biased] 0 where a slot sees a key, -inf where not.
    """

    requests: slice
    block_rows: slice
    pages: Tensor
    own: Tensor
    unused: Tensor
    first_biased: int
    bias: Tensor

    @property
    def num_requests(self) -> int:
        """n."""
        return self.bias.shape[0]


@dataclass(frozen=True, kw_only=True)
class BlockPlan:
    """Tiles of one step; shared by all layers.

    Attributes:
        num_requests: R.
        order: [R] int64 the requests by context length; None when they already are in that order.
        positions: [R * G] int64 positions of the block slots, sorted batch.
        tiles: cover the sorted batch in order.
    """

    num_requests: int
    order: Tensor | None
    positions: Tensor
    tiles: tuple[Tile, ...]

    def sort(self, rows: Tensor) -> Tensor:
        """Bring rows [R, ..] into the order of the plan."""
        return rows if self.order is None else rows.index_select(0, self.order)

    def unsort(self, rows: Tensor) -> Tensor:
        """Bring rows [R, ..] back into the caller's order."""
        return rows if self.order is None else torch.empty_like(rows).index_copy_(0, self.order, rows)


class BlockPlanner:
    """Makes the plans of a drafter.

    Args:
        config: the drafter's shape.
        page_size: tokens per page.
        dtype: dtype of scores.
        device: where plans are used.
    """

    def __init__(self, config: DSparkConfig, page_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._block, self._window, self._page_size = config.block_size, config.sliding_window, page_size
        self._dtype, self._device = dtype, device
        page_bytes = 2 * config.num_key_value_heads * page_size * config.head_dim * dtype.itemsize
        self._tile_pages = max(1, _TILE_BYTES // page_bytes)

    def plan(self, page_table: Tensor, anchors: tuple[int, ...]) -> BlockPlan:
        """Plan for page_table [R, P] int64 and the anchor positions of its requests."""
        order = np.argsort(anchors, kind="stable")
        in_order = bool((order[1:] > order[:-1]).all())
        starts = np.asarray(anchors, dtype=np.int64)[order]
        sorted_order = None if in_order else self._tensor(order)
        table = page_table if sorted_order is None else page_table.index_select(0, sorted_order)
        return BlockPlan(
            num_requests=len(anchors),
            order=sorted_order,
            positions=self._tensor((starts[:, None] + np.arange(self._block)).ravel()),
            tiles=tuple(self._tile(table, starts, cut) for cut in self._cuts(starts)),
        )

    def _first_pages(self, starts: np.ndarray) -> np.ndarray:
        """Pages of context lengths that no slot of the block sees any more: 0 without a window."""
        if self._window is None:
            return np.zeros_like(starts)
        return np.maximum(starts - self._window + 1, 0) // self._page_size

    def _pages(self, starts: np.ndarray) -> np.ndarray:
        """Pages to gather for context lengths: the keys in sight, and the block."""
        return -(-(starts + self._block) // self._page_size) - self._first_pages(starts)

    def _cuts(self, starts: np.ndarray) -> Iterator[slice]:
        """Cut ascending context lengths into tiles of bounded size (at least one request each)."""
        first, widest = 0, 0
        for request, pages in enumerate(self._pages(starts).tolist()):
            widest = max(widest, pages)
            if request > first and (request + 1 - first) * widest > self._tile_pages:
                yield slice(first, request)
                first, widest = request, pages
        yield slice(first, len(starts))

    def _tile(self, table: Tensor, starts: np.ndarray, requests: slice) -> Tile:
        starts = starts[requests, None]  # [n, 1]
        first_pages, needed = self._first_pages(starts), int(self._pages(starts).max())
        count, span = len(starts), needed * self._page_size
        keys = first_pages * self._page_size + np.arange(span)  # [n, S] positions
        past = keys >= starts + self._block
        hidden = past[:, None]  # [n, 1, S]
        if self._window is not None:
            slots = starts[..., None] + np.arange(self._block)[:, None]  # [n, G, 1]
            hidden = hidden | (keys[:, None] <= slots - self._window) & (keys < starts)[:, None]
        first_biased = int(starts[0, 0]) + self._block if self._window is None else 0
        bias = np.where(hidden[..., first_biased:], np.float32("-inf"), np.float32(0.0))
        first_keys = np.arange(count)[:, None] * span - first_pages * self._page_size
        return Tile(
            requests=requests,
            block_rows=slice(requests.start * self._block, requests.stop * self._block),
            pages=self._gathered(table[requests], first_pages, needed),
            own=self._tensor((first_keys + starts + np.arange(self._block)).ravel()),
            unused=self._tensor(np.flatnonzero(past)),
            first_biased=first_biased,
            bias=self._tensor(bias[:, None]).to(self._dtype),
        )

    def _gathered(self, table: Tensor, first_pages: np.ndarray, needed: int) -> Tensor:
        """``needed`` pages of each row of [n, P], from its first page on; page 0 stands in where none exists yet."""
        missing = int(first_pages.max()) + needed - table.shape[1]
        if missing > 0:  # never seen
            table = torch.nn.functional.pad(table, (0, missing))
        if not first_pages.any():
            return table[:, :needed].flatten()
        return table.gather(1, self._tensor(first_pages + np.arange(needed))).flatten()

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)
