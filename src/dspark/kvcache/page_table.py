"""The pages of one sequence, and where its positions lie in the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dspark.kvcache.prefix_index import PrefixNode


@dataclass(slots=True, eq=False)
class PageTable:
    """Pages of one sequence in order of position. Owned by the engine, changed by the pool only.

    Attributes:
        pages: page ids; position p lies in ``pages[p // page_size]``.
        num_published: leading full pages whose text is in the prefix index; they are never written again.
        num_matched: leading pages that were found in the index when the table was made (cached prompt).
        tip: index node of the text of the last published page; None before the first one.
    """

    pages: list[int] = field(default_factory=list)
    num_published: int = 0
    num_matched: int = 0
    tip: PrefixNode | None = None


def pages_for(num_tokens: int, page_size: int) -> int:
    """How many pages ``num_tokens`` tokens need."""
    return -(-num_tokens // page_size)


def slots(table: PageTable, start: int, end: int, page_size: int) -> list[int]:
    """KV slots (``page * page_size + offset``) of positions ``start .. end - 1``.

    Args:
        table: pages of the sequence; must cover ``end`` tokens.
        start: first position.
        end: one past the last position.
        page_size: tokens per page.

    Returns:
        ``end - start`` slots in order of position.
    """
    assert start >= 0, f"positions start at 0, not at {start}"
    assert end <= len(table.pages) * page_size, f"position {end - 1} is outside the page table"
    found: list[int] = []
    while start < end:
        index, offset = divmod(start, page_size)
        count = min(end - start, page_size - offset)
        first = table.pages[index] * page_size + offset
        found.extend(range(first, first + count))
        start += count
    return found


def pages_of(tables: Sequence[PageTable]) -> NDArray[np.int64]:
    """Page ids of several sequences as one array.

    Returns:
        [R, P] int64, P pages of the longest table (at least 1); entries past the end of a table are 0.
    """
    width = max((len(table.pages) for table in tables), default=0)
    array = np.zeros((len(tables), max(width, 1)), np.int64)
    for row, table in zip(array, tables, strict=True):
        row[: len(table.pages)] = table.pages
    return array
