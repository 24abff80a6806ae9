"""Cutting a packed batch into tiles that one batched matrix product each can serve.

A *piece* is a run of rows of one request together with the keys its last row sees; long prefill chunks are cut into
several pieces, so neither scores nor masks ever grow with rows x keys of a whole chunk. A *tile* is a set of pieces
with about the same number of keys. Everything here is made once per forward and window and shared by all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dspark.core import PackedBatch

_MAX_REPEATED = 1 << 20  # entries of a mask that is repeated for every head


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Rows ``row .. row + length - 1`` of the batch, which belong to one request and see its keys below ``kv_len``."""

    request: int
    row: int
    length: int
    kv_len: int
    first_page: int
    num_pages: int


@dataclass(frozen=True, kw_only=True)
class Padding:
    """Rows of a tile whose pieces differ in length.

    Attributes:
        rows: [n * Q] batch row of each place; places past the end of a piece repeat its last row.
        places: [k] places that hold a row of their own.
        targets: [k] the batch rows of those places.
    """

    rows: Tensor
    places: Tensor
    targets: Tensor


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Pieces served together. n pieces, Q rows of the longest, P pages of the longest, S = P * page_size keys.

    Attributes:
        num_pieces: n.
        num_rows: Q.
        pages: [n * P] pages to gather.
        start: first batch row, where the tile's rows are n * Q consecutive ones.
        padded: the rows where they are not.
        masked_from: keys before this one are seen by all rows.
        bias: [n, 1, Q, S - masked_from] 0 or -inf.
    """

    num_pieces: int
    num_rows: int
    pages: Tensor
    start: int
    padded: Padding | None
    masked_from: int
    bias: Tensor
    masks: dict[int, Tensor] = field(default_factory=dict)

    def select(self, rows: Tensor) -> Tensor:
        """[n * Q, ...] the tile's rows of a batch [T, ...]."""
        if self.padded is None:
            return rows[self.start : self.start + self.num_pieces * self.num_rows]
        return rows[self.padded.rows]

    def scatter(self, out: Tensor, rows: Tensor) -> None:
        """Put the tile's rows [n * Q, ...] into their places of a batch [T, ...]."""
        if self.padded is None:
            self.select(out).copy_(rows)
        else:
            out.index_copy_(0, self.padded.targets, rows.index_select(0, self.padded.places))

    def repeats_mask(self, num_rows: int) -> bool:
        """Whether the mask may be repeated for all ``num_rows`` rows of all heads."""
        keys = self.masked_from + self.bias.shape[-1]
        return num_rows * keys <= _MAX_REPEATED

    def full_mask(self, heads: int, groups: int) -> Tensor:
        """[K * n, G * Q, S] mask for K heads and G groups; made once and shared by all layers."""
        mask = self.masks.get(heads)
        if mask is None:
            n, _, q, _ = self.bias.shape
            whole = torch.nn.functional.pad(self.bias, (self.masked_from, 0))
            mask = whole[None].expand(heads, n, groups, q, -1).reshape(heads * n, groups * q, -1)
            self.masks[heads] = mask
        return mask


@dataclass(frozen=True, kw_only=True)
class TileLimits:
    """How large pieces and tiles may get.

    Attributes:
        piece_rows: rows of one piece at most.
        tile_pages: padded pages of one tile at most (a single piece may exceed it).
        padding: padded pages may exceed real pages by this share.
    """

    piece_rows: int
    tile_pages: int
    padding: float = 0.25


def make_tiles(batch: PackedBatch, window: int | None, limits: TileLimits, dtype: torch.dtype) -> tuple[Tile, ...]:
    """Tiles that cover every row of the batch exactly once, for layers with this window."""
    groups = group_pieces(cut_pieces(batch, window, limits.piece_rows), limits)
    return tuple(_tile(batch, group, window, dtype) for group in groups)


def cut_pieces(batch: PackedBatch, window: int | None, piece_rows: int) -> list[Piece]:
    """Cut every request into pieces of at most ``piece_rows`` rows, in batch order."""
    pieces = []
    row = 0
    for request, (q_len, kv_len) in enumerate(zip(batch.q_lens, batch.kv_lens, strict=True)):
        for start in range(0, q_len, piece_rows):
            length = min(piece_rows, q_len - start)
            keys = kv_len - q_len + start + length
            lowest = 0 if window is None else max(0, keys - length - window + 1)
            first = lowest // batch.page_size
            pages = -(-keys // batch.page_size) - first
            pieces.append(
                Piece(request=request, row=row + start, length=length, kv_len=keys, first_page=first, num_pages=pages)
            )
        row += q_len
    return pieces


def group_pieces(pieces: Sequence[Piece], limits: TileLimits) -> list[list[Piece]]:
    """Group pieces of about the same number of pages; a batch that fits one tile keeps its order."""
    if _fits(pieces, limits):
        return [list(pieces)]
    groups: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (piece.num_pages, piece.row)):
        if groups and _fits([*groups[-1], piece], limits):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _fits(pieces: Sequence[Piece], limits: TileLimits) -> bool:
    """Whether padding these pieces to one shape is small and cheap."""
    if len(pieces) == 1:
        return True
    padded = len(pieces) * max(piece.num_pages for piece in pieces)
    padded_rows = len(pieces) * max(piece.length for piece in pieces)
    real = sum(piece.num_pages for piece in pieces)
    return padded <= limits.tile_pages and padded <= real * (1 + limits.padding) and padded_rows <= limits.piece_rows


def _tile(batch: PackedBatch, pieces: Sequence[Piece], window: int | None, dtype: torch.dtype) -> Tile:
    num_rows = max(piece.length for piece in pieces)
    masked_from, bias = _tile_bias(batch, pieces, num_rows, window, dtype)
    return Tile(
        num_pieces=len(pieces),
        num_rows=num_rows,
        pages=_tile_pages(batch, pieces),
        start=pieces[0].row,
        padded=_tile_padding(pieces, num_rows, batch.input_ids.device),
        masked_from=masked_from,
        bias=bias,
    )


def _tile_pages(batch: PackedBatch, pieces: Sequence[Piece]) -> Tensor:
    """[n * P]; shorter pieces repeat their last page, which is masked."""
    longest = max(piece.num_pages for piece in pieces)
    if len(pieces) == 1:
        piece = pieces[0]
        return batch.page_table[piece.request, piece.first_page : piece.first_page + longest]
    columns = [[piece.first_page + min(offset, piece.num_pages - 1) for offset in range(longest)] for piece in pieces]
    device = batch.page_table.device
    requests = torch.tensor([piece.request for piece in pieces], device=device)
    return batch.page_table[requests[:, None], torch.tensor(columns, device=device)].flatten()


def _tile_padding(pieces: Sequence[Piece], num_rows: int, device: torch.device) -> Padding | None:
    """None where the rows are consecutive and need no padding."""
    first = pieces[0].row
    if all(piece.length == num_rows and piece.row == first + i * num_rows for i, piece in enumerate(pieces)):
        return None
    rows = [piece.row + min(i, piece.length - 1) for piece in pieces for i in range(num_rows)]
    places = torch.tensor([n * num_rows + i for n, piece in enumerate(pieces) for i in range(piece.length)])
    padded = torch.tensor(rows)
    return Padding(rows=padded.to(device), places=places.to(device), targets=padded[places].to(device))


def _tile_bias(
    batch: PackedBatch, pieces: Sequence[Piece], num_rows: int, window: int | None, dtype: torch.dtype
) -> tuple[int, Tensor]:
    """Mask of the keys that not all rows see, aligned so that the last row of a piece sees its last key."""
    device = batch.input_ids.device
    keys = max(piece.num_pages for piece in pieces) * batch.page_size
    first_row = torch.tensor(
        [piece.kv_len - piece.length - piece.first_page * batch.page_size for piece in pieces], device=device
    )
    start = 0 if window is not None else int(first_row.min()) + 1
    key = torch.arange(start, keys, device=device)
    row = first_row[:, None, None, None] + torch.arange(num_rows, device=device)[None, None, :, None]
    hidden = key > row
    if window is not None:
        hidden |= key <= row - window
    bias = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -torch.inf)
    return start, bias
