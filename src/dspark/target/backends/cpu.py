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
from dspark.target.backends.base import AttentionRule, KVShape, lasting
from dspark.target.backends.tiles import Tile, TileLimits, make_tiles

PAGE_SIZE = 32
_TILE_BYTES = 8 << 20  # keys and values
_SPARE_BYTES = 1 << 19
_TILE_SCORES = 8 << 20  # over all query heads
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
        page_bytes = page_size * shape.bytes_per_token() // shape.num_layers
        self._limits = TileLimits(
            piece_rows=_PIECE_ROWS,
            tile_pages=_TILE_BYTES // page_bytes,
            tile_scores=_TILE_SCORES // (shape.num_heads * page_size),
            spare_pages=_SPARE_BYTES // page_bytes,
        )
        self._pool = torch.empty(0)
        self._slots: list[tuple[Tensor, Tensor]] = []
        self._work = torch.empty(0, dtype=shape.dtype, device=shape.device)

    def allocate(self, num_pages: int) -> None:
        """Make room for ``num_pages`` pages; earlier contents are lost."""
        s = self.shape
        sizes = (s.num_layers, 2, s.num_kv_heads, num_pages, self.page_size, s.head_dim)
        self._pool = lasting(sizes, s)
        by_slot = self._pool.flatten(3, 4)  # [layers, 2, K, slots, d]
        self._slots = [(by_slot[layer, 0], by_slot[layer, 1]) for layer in range(s.num_layers)]

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
        key_slots, value_slots = self._slots[layer]
        key_slots.index_copy_(1, plan.batch.kv_slots, key.transpose(0, 1))
        value_slots.index_copy_(1, plan.batch.kv_slots, value.transpose(0, 1))
        tiles = plan.tiles.get(rule.window)
        if tiles is None:
            tiles = make_tiles(plan.batch, rule.window, self._limits, query.dtype)
            plan.tiles[rule.window] = tiles
        if len(tiles) == 1 and tiles[0].padded is None:
            return self._attend_tile(layer, tiles[0], query, rule)
        out = torch.empty((query.shape[0], query.shape[1] * query.shape[2]), dtype=query.dtype, device=query.device)
        for tile in tiles:
            tile.scatter(out, self._attend_tile(layer, tile, tile.select(query), rule))
        return out

    def _attend_tile(self, layer: int, tile: Tile, query: Tensor, rule: AttentionRule) -> Tensor:
        """[n * Q, H * d] attention of the tile's rows, given as [n * Q, H, d]."""
        heads, dim = self.shape.num_kv_heads, self.shape.head_dim
        n, q = tile.num_pieces, tile.num_rows
        keys, values = self._gather(layer, tile)  # [K * n, S, d]
        rows = query.view(n, q, heads, -1, dim).permute(2, 0, 3, 1, 4).reshape(heads * n, -1, dim)
        scores = _masked_scores(rows, keys, tile, rule, heads)
        mixed = torch.bmm(torch.softmax(scores, -1), values)
        return mixed.view(heads, n, -1, q, dim).permute(1, 3, 0, 2, 4).reshape(n * q, -1)

    def _gather(self, layer: int, tile: Tile) -> tuple[Tensor, Tensor]:
        """Keys and values of the tile, each [K * n, S, d], in a work space that the next tile overwrites."""
        s = self.shape
        pages = tile.pages.shape[0]
        count = 2 * s.num_kv_heads * pages * self.page_size * s.head_dim
        if self._work.numel() < count:
            self._work = lasting((count,), s)
        both = self._work[:count].view(2, s.num_kv_heads, pages, self.page_size, s.head_dim)
        torch.index_select(self._pool[layer], 2, tile.pages, out=both)
        keys, values = both.view(2, s.num_kv_heads * tile.num_pieces, -1, s.head_dim)
        return keys, values


def _opens_page(q_len: int, kv_len: int, page_size: int) -> bool:
    """Whether the last ``q_len`` of ``kv_len`` tokens include the first slot of a page."""
    return (kv_len - 1) // page_size > (kv_len - q_len - 1) // page_size


def _masked_scores(rows: Tensor, keys: Tensor, tile: Tile, rule: AttentionRule, heads: int) -> Tensor:
    """[K * n, G * Q, S] scores of rows [K * n, G * Q, d]; a mask small enough to repeat joins the product."""
    if rule.softcap is None and tile.repeats_mask(rows.shape[0] * rows.shape[1]):
        mask = tile.full_mask(heads, rows.shape[1] // tile.num_rows)
        return torch.baddbmm(mask, rows, keys.transpose(1, 2), alpha=rule.scale)
    scores = torch.bmm(rows * rule.scale, keys.transpose(1, 2))
    if rule.softcap is not None:
        scores = scores.div_(rule.softcap).tanh_().mul_(rule.softcap)
    grid = scores.view(heads, tile.num_pieces, -1, tile.num_rows, keys.shape[1])
    grid[..., tile.masked_from :] += tile.bias
    return scores
