"""The page pool: reference counts, prefix reuse, eviction, commit and rollback."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dspark.core import InputError
from dspark.kvcache.integrity import check_pool
from dspark.kvcache.page_table import PageTable, pages_for
from dspark.kvcache.prefix_index import PrefixIndex


@dataclass(frozen=True, kw_only=True)
class PoolStats:
    """Counts at one moment. ``used + cached + free`` is the number of pages.

    Attributes:
        used: pages held by at least one sequence.
        cached: pages held by none, kept because their text may come again.
        free: pages without content.
        hit_tokens: prompt tokens that did not have to be computed, since the pool was made.
        evictions: cached pages given up for room, since the pool was made.
    """

    used: int
    cached: int
    free: int
    hit_tokens: int
    evictions: int


class PagePool:
    """Hands out pages of KV memory and remembers which texts are in them.

    A page is free, held (by one or more page tables), or cached (held by none, but indexed). Only full pages whose rows
    have been written enter the index, and an indexed page is never written again, so a hit is always exact. The pool
    moves no data: it knows page numbers only.

    Args:
        num_pages: pages in the pool, >= 1.
        page_size: tokens per page, >= 1.
        prefix_cache: False never reuses a page for another sequence.

    Raises:
        InputError: a size is below 1.
    """

    def __init__(self, num_pages: int, page_size: int, *, prefix_cache: bool = True) -> None:
        if num_pages < 1 or page_size < 1:
            raise InputError(f"a page pool needs >= 1 page of >= 1 token, got {num_pages} pages of {page_size} tokens")
        self.num_pages = num_pages
        self.page_size = page_size
        self.prefix_cache = prefix_cache
        self._index = PrefixIndex(page_size)
        self._free = list(range(num_pages - 1, -1, -1))  # a stack: the page given back last is used next
        self._refs = [0] * num_pages
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first, children before parents
        self._hit_tokens = 0
        self._evictions = 0

    def num_free(self) -> int:
        """Pages that can be handed out: free ones and cached ones."""
        return len(self._free) + len(self._cached)

    def match_prefix(self, token_ids: Sequence[int]) -> PageTable:
        """Start a sequence with the longest cached chain of full pages.

        At least one token is left to compute, because its logits are wanted.

        Args:
            token_ids: all tokens of the sequence so far (a prompt, or a preempted sequence with its output).

        Returns:
            A table that holds the matched pages (possibly none); give it back with :meth:`release`.
        """
        if not self.prefix_cache:
            return PageTable()
        chain = self._index.match(token_ids, max(len(token_ids) - 1, 0) // self.page_size)
        for node in chain:
            self._refs[node.page] += 1
            self._cached.pop(node.page, None)
        pages = [node.page for node in chain]
        return PageTable(
            pages=pages, num_published=len(pages), num_matched=len(pages), tip=chain[-1] if chain else None
        )

    def reserve(self, table: PageTable, num_tokens: int) -> bool:
        """Grow a table until ``num_tokens`` tokens fit, evicting cached pages where needed.

        Returns:
            False if there are not enough pages; then nothing has changed.
        """
        need = pages_for(num_tokens, self.page_size) - len(table.pages)
        if need <= 0:
            return True
        if need > self.num_free():
            return False
        if len(table.pages) == table.num_matched:  # first growth: the sequence really runs with its match
            self._hit_tokens += table.num_matched * self.page_size
        table.pages.extend(self._take() for _ in range(need))
        return True

    def publish(self, table: PageTable, token_ids: Sequence[int], num_computed: int) -> None:
        """Commit: let other sequences find the full pages among the first ``num_computed`` tokens.

        Where another page with the same text is indexed already, that one stays and this sequence keeps its own page
        to itself.

        Args:
            table: pages of the sequence.
            token_ids: its tokens; only the first ``num_computed`` are looked at.
            num_computed: leading tokens that are final; their rows (target KV and drafter context) are written before
                anybody reads them.
        """
        full = num_computed // self.page_size
        if not self.prefix_cache or full <= table.num_published:
            return
        assert full <= len(table.pages), "computed rows lie outside the page table"
        assert num_computed <= len(token_ids), "a row was computed for an unknown token"
        if table.tip is None or not table.tip.alive:  # evicted behind our back: index the text from its start again
            table.tip, table.num_published = self._index.root, 0
        for index in range(table.num_published, full):
            tokens = self._index.page_tokens(token_ids, index)
            child = table.tip.children.get(tokens)
            table.tip = child or self._index.insert(table.tip, tokens, table.pages[index])
        table.num_published = full

    def rollback(self, table: PageTable, num_tokens: int) -> None:
        """Give back the pages that ``num_tokens`` tokens do not need; published pages are never rolled back."""
        assert num_tokens >= table.num_published * self.page_size, "a committed token cannot be rolled back"
        keep = pages_for(num_tokens, self.page_size)
        while len(table.pages) > keep:
            self._drop_reference(table.pages.pop())

    def release(self, table: PageTable) -> None:
        """End a sequence: give back all its pages. The table is empty afterwards and may be released again."""
        while table.pages:
            self._drop_reference(table.pages.pop())
        if table.tip is not None and table.tip.alive:
            for node in table.tip.up():  # used just now, children before parents
                if node.page in self._cached:
                    self._cached.move_to_end(node.page)
        table.num_published, table.num_matched, table.tip = 0, 0, None

    def check_integrity(self, tables: Iterable[PageTable]) -> None:
        """Check everything the pool believes against the tables of all living sequences.

        Raises:
            AssertionError: with the reason, if a page is lost, held twice, counted wrongly or indexed wrongly.
        """
        check_pool(list(tables), self._free, self._refs, self._cached, self._index, self.page_size)

    def stats(self) -> PoolStats:
        """Counts for metrics."""
        return PoolStats(
            used=self.num_pages - self.num_free(),
            cached=len(self._cached),
            free=len(self._free),
            hit_tokens=self._hit_tokens,
            evictions=self._evictions,
        )

    def _take(self) -> int:
        if not self._free:
            self._evict()
        page = self._free.pop()
        self._refs[page] = 1
        return page

    def _evict(self) -> None:
        """Free the least recently used cached page, and with it what only it made reachable."""
        for page in self._index.drop(self._index.node_of[next(iter(self._cached))]):
            if self._refs[page] == 0:
                del self._cached[page]
                self._free.append(page)
                self._evictions += 1

    def _drop_reference(self, page: int) -> None:
        self._refs[page] -= 1
        if self._refs[page] > 0:
            return
        if page in self._index.node_of:
            self._cached[page] = None
        else:
            self._free.append(page)
