"""Paged attention from plain tensor operations: the CPU backend, exact on any device and for every family.

Scores come from batched matrix products with the query heads of a key/value head folded into the rows: on CPUs that is
several times faster than the fused attention of torch, which treats every query head alone. Keys and values are held as
``[2, heads, pages, page_size, head_dim]``, so one selection of pages gives both operands ready for the product.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dspark.core import PackedBatch
from dspark.target.backends.base import AttentionRule, KVShape
from dspark.target.backends.tiles import Tile, TileLimits, make_tiles

PAGE_SIZE = 16
_TILE_BYTES = 2 << 20
_PIECE_ROWS = 128


@dataclass(kw_only=True)
class CpuPlan:
    """One batch as the CPU backend sees it; tiles are made at the first layer that asks for their window."""

    batch: PackedBatch
    tiles: dict[int | None, tuple[Tile, ...]] = field(default_factory=dict)


class CpuBackend:
    """Paged key/value store in one tensor, attention tile by tile."""

    def __init__(self, shape: KVShape, page_size: int = PAGE_SIZE) -> None:
        self.shape = shape
        self.page_size = page_size
        self._limits = TileLimits(piece_rows=_PIECE_ROWS, tile_pages=self._pages_per_tile())
        self._pool = torch.empty(0)
        self._work = torch.empty(0)

    def allocate(self, num_pages: int) -> None:
        """Make room for ``num_pages`` pages; earlier contents are lost."""
        s = self.shape
        sizes = (s.num_layers, 2, s.num_kv_heads, num_pages, self.page_size, s.head_dim)
        self._pool = torch.zeros(sizes, dtype=s.dtype, device=s.device)

    def plan(self, batch: PackedBatch) -> CpuPlan:
        """Clear the pages this batch opens, so that no number of a former owner can ever reach a product."""
        assert batch.page_size == self.page_size, (batch.page_size, self.page_size)
        if any(_opens_page(q, kv, self.page_size) for q, kv in zip(batch.q_lens, batch.kv_lens, strict=True)):
            opened = batch.kv_slots[batch.kv_slots % self.page_size == 0] // self.page_size
            self._pool.index_fill_(3, opened, 0.0)
        return CpuPlan(batch=batch)

    def attend(
        self, plan: CpuPlan, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule
    ) -> Tensor:
        """Store keys and values, then attend; see :class:`AttentionBackend`."""
        pool = self._pool[layer]
        slots = pool.flatten(2, 3)  # [2, K, slots, d]
        slots[0].index_copy_(1, plan.batch.kv_slots, key)
        slots[1].index_copy_(1, plan.batch.kv_slots, value)
        tiles = plan.tiles.get(rule.window)
        if tiles is None:
            tiles = make_tiles(plan.batch, rule.window, self._limits, query.dtype)
            plan.tiles[rule.window] = tiles
        folded = query.unflatten(0, (self.shape.num_kv_heads, -1))  # [K, G, T, d]
        if len(tiles) == 1 and isinstance(tiles[0].rows, slice):
            return self._attend_tile(pool, tiles[0], folded, rule).flatten(1)
        out = torch.empty((query.shape[1], *folded.shape[:2], query.shape[2]), dtype=query.dtype, device=query.device)
        for tile in tiles:
            _scatter(out, tile, self._attend_tile(pool, tile, folded, rule))
        return out.flatten(1)

    def _attend_tile(self, pool: Tensor, tile: Tile, query: Tensor, rule: AttentionRule) -> Tensor:
        """[n * Q, K, G, d] attention of the tile's rows."""
        heads, groups, _, dim = query.shape
        n, q = tile.num_pieces, tile.num_rows
        keys, values = self._gather(pool, tile)  # [K * n, S, d]
        rows = query[:, :, tile.rows].unflatten(2, (n, q))  # [K, G, n, Q, d]
        rows = rows.transpose(1, 2).reshape(heads * n, groups * q, dim)
        scores = torch.bmm(rows * rule.scale, keys.transpose(1, 2))
        if rule.softcap is not None:
            scores = scores.div_(rule.softcap).tanh_().mul_(rule.softcap)
        scores.view(heads, n, groups, q, -1)[..., tile.masked_from :] += tile.bias
        mixed = torch.bmm(torch.softmax(scores, -1), values)
        return mixed.view(heads, n, groups, q, dim).permute(1, 3, 0, 2, 4).flatten(0, 1)

    def _gather(self, pool: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        """Keys and values of the tile, each [K * n, S, d], in a work space that the next tile overwrites."""
        s = self.shape
        sizes = (2, s.num_kv_heads, tile.pages.shape[0], self.page_size, s.head_dim)
        count = 2 * s.num_kv_heads * tile.pages.shape[0] * self.page_size * s.head_dim
        if self._work.numel() < count or self._work.device != pool.device:
            self._work = torch.empty(count, dtype=s.dtype, device=s.device)
        both = self._work[:count].view(sizes)
        torch.index_select(pool, 2, tile.pages, out=both)
        keys, values = both.view(2, s.num_kv_heads * tile.num_pieces, -1, s.head_dim)
        return keys, values

    def _pages_per_tile(self) -> int:
        page = 2 * self.shape.num_kv_heads * self.page_size * self.shape.head_dim * self.shape.dtype.itemsize
        return max(1, _TILE_BYTES // page)


def _opens_page(q_len: int, kv_len: int, page_size: int) -> bool:
    """Whether the last ``q_len`` of ``kv_len`` tokens include the first slot of a page."""
    return (kv_len - 1) // page_size > (kv_len - q_len - 1) // page_size


def _scatter(out: Tensor, tile: Tile, rows: Tensor) -> None:
    """Put the rows of a tile into their places of [T, K, G, d]."""
    if isinstance(tile.rows, slice):
        out[tile.rows] = rows
    else:
        assert tile.valid is not None
        assert tile.targets is not None
        out.index_copy_(0, tile.targets, rows.index_select(0, tile.valid))
