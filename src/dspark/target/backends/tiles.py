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

MIN_PIECE_ROWS = 16
"""Pieces are not cut below this many rows, however many keys they see."""

_FEW_ROWS = 16  # pieces of up to this many rows may share a tile whatever their length
_PADDING = 1.25  # padded size over real size of a tile at most
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
        tile_scores: rows x pages of one tile at most (a piece of :data:`MIN_PIECE_ROWS` may exceed it).
        spare_pages: padded pages that cost less than another tile would.
    """

    piece_rows: int
    tile_pages: int
    tile_scores: int
    spare_pages: int

    def rows_for(self, pages: int) -> int:
        """Rows of a piece that sees this many pages."""
        return min(self.piece_rows, max(MIN_PIECE_ROWS, self.tile_scores // pages))


@dataclass(kw_only=True)
class Group:
    """Pieces gathered for one tile so far."""

    pieces: list[Piece] = field(default_factory=list)
    pages: int = 0  # of the longest piece
    rows: int = 0  # of the longest piece
    real_pages: int = 0
    real_scores: int = 0

    def takes(self, piece: Piece, limits: TileLimits) -> bool:
        """Add the piece if the tile stays small and padding it to one shape stays cheap."""
        pages, rows = max(self.pages, piece.num_pages), max(self.rows, piece.length)
        real_pages = self.real_pages + piece.num_pages
        real_scores = self.real_scores + piece.num_pages * piece.length
        padded = pages * (len(self.pieces) + 1)
        small = padded <= limits.tile_pages and padded * rows <= limits.tile_scores
        cheap = padded <= max(_PADDING * real_pages, real_pages + limits.spare_pages)
        even = rows <= _FEW_ROWS or padded * rows <= _PADDING * real_scores
        if self.pieces and not (small and cheap and even):
            return False
        self.pieces.append(piece)
        self.pages, self.rows, self.real_pages, self.real_scores = pages, rows, real_pages, real_scores
        return True


def make_tiles(batch: PackedBatch, window: int | None, limits: TileLimits, dtype: torch.dtype) -> tuple[Tile, ...]:
    """Tiles that cover every row of the batch exactly once, for layers with this window."""
    groups = group_pieces(cut_pieces(batch, window, limits), limits)
    return tuple(_tile(batch, group, window, dtype) for group in groups)


def cut_pieces(batch: PackedBatch, window: int | None, limits: TileLimits) -> list[Piece]:
    """Cut every request into pieces of limited size, in batch order."""
    pieces = []
    row = 0
    for request, (q_len, kv_len) in enumerate(zip(batch.q_lens, batch.kv_lens, strict=True)):
        step = limits.rows_for(-(-kv_len // batch.page_size))
        for start in range(0, q_len, step):
            length = min(step, q_len - start)
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
    """Group pieces of about the same size; a batch that fits one tile keeps its order."""
    group = Group()
    if all(group.takes(piece, limits) for piece in pieces):
        return [group.pieces]
    groups = [Group()]
    for piece in sorted(pieces, key=lambda piece: (piece.length > _FEW_ROWS, piece.num_pages, piece.row)):
        if not groups[-1].takes(piece, limits):
            groups.append(Group())
            groups[-1].takes(piece, limits)
    return [group.pieces for group in groups]


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
    device = batch.page_table.device
    request, first, count = torch.tensor([(p.request, p.first_page, p.num_pages) for p in pieces], device=device).T
    offsets = torch.arange(longest, device=device).minimum(count[:, None] - 1)
    return batch.page_table[request[:, None], first[:, None] + offsets].flatten()


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
