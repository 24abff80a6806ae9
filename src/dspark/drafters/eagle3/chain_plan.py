"""Where the context of one drafting step lies, for a chain of single rows per request.

The key of a row lies in the slot of the token it ends with, so the context of a request whose anchor is at a is in the
slots 1 .. a - 1 of its pages, and the chain's own rows go behind it, to the places a, a + 1, ... Requests are taken in
order of context length and cut into tiles; the context of a tile is gathered once for all steps of the chain.
Legend: R requests, n requests of a tile, S gathered keys per request, K key/value heads, E head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_TILE_PAGES = 512


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Neighbouring requests of the sorted batch.

    Attributes:
        requests: the requests, as a range of the sorted batch.
        keys_values: [2, K, n * S, E] their context, with room for the chain's own rows behind it.
        first, last: smallest and largest anchor position.
        own: [n] int64 place among the n * S keys of the chain's first row.
        bias: [n, 1, last - first + 1] 0 where the chain's first row sees keys first, first + 1, ..., -inf where not;
            None when all anchors are at the same position.
    """

    requests: slice
    keys_values: Tensor
    first: int
    last: int
    own: Tensor
    bias: Tensor | None


@dataclass(frozen=True, kw_only=True)
class ChainPlan:
    """The tiles of one proposal.

    Attributes:
        order: [R] int64 the requests by context length; None when there is one tile, which keeps the caller's order.
        back: [R] int64 the inverse of ``order``.
        tiles: cover the sorted batch in order.
    """

    order: Tensor | None
    back: Tensor | None
    tiles: tuple[Tile, ...]


def make_plan(pages: Tensor, page_table: Tensor, anchors: tuple[int, ...], steps: int) -> ChainPlan:
    """Gather the contexts for chains of ``steps`` rows.

    Args:
        pages: [2, K, pages, page_size, E] keys and values of the drafter's context.
        page_table: [R, P] int64.
        anchors: anchor positions, each >= 1.
        steps: rows of each chain.
    """
    starts = np.asarray(anchors, dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    cuts = list(_cuts(starts[order], steps, pages.shape[3]))
    if len(cuts) == 1:
        return ChainPlan(order=None, back=None, tiles=(_tile(pages, page_table, starts, cuts[0], steps),))
    chosen = torch.from_numpy(order).to(pages.device)
    table = page_table.index_select(0, chosen)
    tiles = tuple(_tile(pages, table, starts[order], cut, steps) for cut in cuts)
    return ChainPlan(order=chosen, back=torch.argsort(chosen), tiles=tiles)


def _cuts(starts: np.ndarray, steps: int, page_size: int) -> Iterator[slice]:
    """Cut ascending context lengths into tiles of bounded size (at least one request each)."""
    first = 0
    for request, start in enumerate(starts.tolist()):
        if request > first and (request + 1 - first) * -(-(start + steps) // page_size) > _TILE_PAGES:
            yield slice(first, request)
            first = request
    yield slice(first, len(starts))


def _tile(pages: Tensor, table: Tensor, starts: np.ndarray, requests: slice, steps: int) -> Tile:
    starts = starts[requests, None]  # [n, 1]
    first, last = int(starts.min()), int(starts.max())
    needed = -(-(last + steps) // pages.shape[3])
    span = needed * pages.shape[3]
    gathered = pages.index_select(2, _first_columns(table[requests], needed).flatten()).flatten(2, 3)
    unwritten = np.flatnonzero(np.arange(span) >= starts)  # may hold anything, even NaN
    gathered.index_fill_(2, _tensor(unwritten, pages), 0.0)
    own = np.arange(len(starts)) * span + starts[:, 0]
    bias = None
    if first < last:
        behind = np.arange(first, last + 1) > starts
        bias = _tensor(np.where(behind, np.float32("-inf"), np.float32(0.0))[:, None], pages).to(pages.dtype)
    return Tile(requests=requests, keys_values=gathered, first=first, last=last, own=_tensor(own, pages), bias=bias)


def _first_columns(table: Tensor, count: int) -> Tensor:
    """The first ``count`` columns of [n, P]; page 0 stands in for pages that do not exist yet (never seen)."""
    missing = count - table.shape[1]
    return table[:, :count] if missing <= 0 else torch.nn.functional.pad(table, (0, missing))


def _tensor(array: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device)
