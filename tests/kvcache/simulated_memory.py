"""A stand-in for KV memory that shows at once when a row is read that was not written for this text."""

from __future__ import annotations

from dspark.kvcache import PagePool, PageTable, slots


class SimulatedMemory:
    """One cell per slot. A row depends on its token and all tokens before it, so the cell holds exactly these."""

    def __init__(self, pool: PagePool) -> None:
        self.page_size = pool.page_size
        self.cells: list[tuple[int, ...] | None] = [None] * (pool.num_pages * pool.page_size)

    def write(self, table: PageTable, tokens: list[int], start: int, end: int) -> None:
        """Compute the rows of positions start .. end - 1."""
        for position, slot in zip(range(start, end), slots(table, start, end, self.page_size), strict=True):
            self.cells[slot] = tuple(tokens[: position + 1])

    def assert_holds(self, table: PageTable, tokens: list[int], num_computed: int) -> None:
        """The first num_computed rows read through this table are those of this text."""
        for position, slot in enumerate(slots(table, 0, num_computed, self.page_size)):
            assert self.cells[slot] == tuple(tokens[: position + 1])
