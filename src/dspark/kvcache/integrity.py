"""The bookkeeping of a page pool checked from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain

from dspark.kvcache.page_table import PageTable
from dspark.kvcache.prefix_index import PrefixIndex


def check_pool(
    tables: Sequence[PageTable],
    free: Sequence[int],
    refs: Sequence[int],
    cached: Collection[int],
    index: PrefixIndex,
    page_size: int,
) -> None:
    """Check a pool against the tables of all living sequences.

    Args:
        tables: every table that holds pages.
        free: pages without content.
        refs: holders of each page.
        cached: indexed pages that nobody holds.
        index: the prefix index.
        page_size: tokens per page.

    Raises:
        AssertionError: with the reason.
    """
    _check_places(tables, free, refs, cached)
    _check_index(free, refs, cached, index, page_size)
    _check_sharing(tables, index)
    for table in tables:
        _check_table(table)


def _check_places(
    tables: Sequence[PageTable], free: Sequence[int], refs: Sequence[int], cached: Collection[int]
) -> None:
    """Every page is in exactly one place, and counted once per table that holds it."""
    held = Counter(page for table in tables for page in table.pages)
    for page, count in enumerate(refs):
        assert held[page] == count, f"page {page} is held {held[page]} times but counted {count} times"
    places = Counter(chain(free, cached, held))
    for page in range(len(refs)):
        assert places[page] == 1, f"page {page} is in {places[page]} places of: free list, cache, tables"
    assert len(places) == len(refs), "there are pages outside the pool"


def _check_index(
    free: Sequence[int], refs: Sequence[int], cached: Collection[int], index: PrefixIndex, page_size: int
) -> None:
    """The tree holds each indexed page once, under the right key; free pages are not in it; cached pages are."""
    todo, seen = [index.root], 0
    for node in todo:  # grows while it is walked
        for tokens, child in node.children.items():
            assert (child.parent, child.tokens) == (node, tokens), f"page {child.page} hangs under a wrong key"
            assert len(tokens) == page_size, f"page {child.page} is indexed but not full"
            assert child.alive, f"page {child.page} has left the index but can be reached"
            assert index.node_of.get(child.page) is child, f"page {child.page} is indexed twice"
            todo.append(child)
            seen += 1
    assert seen == len(index.node_of), "there are indexed pages that cannot be reached"
    for page in free:
        assert page not in index.node_of, f"page {page} is free but indexed"
    for page in index.node_of:
        assert refs[page] > 0 or page in cached, f"page {page} is indexed but neither held nor cached"
    for page in cached:
        assert page in index.node_of, f"page {page} is cached but cannot be found"


def _check_sharing(tables: Sequence[PageTable], index: PrefixIndex) -> None:
    """A page held by several tables is published by all of them, at the same place of their text."""
    first: dict[int, int] = {}
    for table in tables:
        for place, page in enumerate(table.pages):
            if first.setdefault(page, place) != place:
                raise AssertionError(f"page {page} is held at two different places of a text")
            if page in index.node_of:
                assert place < table.num_published, f"page {page} can be found but is not final for its holder"
    held = Counter(page for table in tables for page in table.pages)
    for page, count in held.items():
        assert count == 1 or page in index.node_of, f"page {page} is shared but was never published"


def _check_table(table: PageTable) -> None:
    """Counts of a table fit each other, and its tip is as deep as it says."""
    assert 0 <= table.num_matched <= table.num_published <= len(table.pages), "a table claims more than it holds"
    if table.tip is not None and table.tip.alive:
        depth = sum(1 for _ in table.tip.up())
        assert depth == table.num_published, f"a table has {table.num_published} published pages but is {depth} deep"
