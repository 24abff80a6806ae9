"""Random traces against a model of the memory behind the pool: every row read is the row of that text."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dspark.kvcache import PagePool, PageTable, pages_for, slots

from .simulated_memory import SimulatedMemory

TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)


@dataclass
class Running:
    """A living sequence; all tokens but the last are computed once it has made a step."""

    table: PageTable
    tokens: list[int]
    num_computed: int = field(default=0)


class PoolTraces(RuleBasedStateMachine):
    """match / reserve / publish / rollback / release in any order, as an engine would call them."""

    num_pages = 7

    @initialize(page_size=st.integers(1, 3))
    def make(self, page_size: int) -> None:
        self.pool = PagePool(self.num_pages, page_size)
        self.memory = SimulatedMemory(self.pool)
        self.running: list[Running] = []
        self.published: set[tuple[int, ...]] = set()
        self.evicted = False

    def pick(self, number: int) -> Running:
        return self.running[number % len(self.running)]

    def free_by_model(self) -> int:
        return self.num_pages - len({page for sequence in self.running for page in sequence.table.pages})

    def longest_by_model(self, tokens: list[int]) -> int:
        pages, size = 0, self.pool.page_size
        while (pages + 1) * size < len(tokens) and tuple(tokens[: (pages + 1) * size]) in self.published:
            pages += 1
        return pages

    def commit(self, sequence: Running) -> None:
        self.pool.publish(sequence.table, sequence.tokens, sequence.num_computed)
        size = self.pool.page_size
        for end in range(size, sequence.num_computed + 1, size):
            self.published.add(tuple(sequence.tokens[:end]))

    @rule(tokens=TOKENS)
    def start(self, tokens: list[int]) -> None:
        table = self.pool.match_prefix(tokens)
        matched = len(table.pages)
        assert matched == table.num_matched == table.num_published
        assert matched <= self.longest_by_model(tokens)
        assert matched == self.longest_by_model(tokens) or self.pool.stats().evictions > 0
        self.running.append(Running(table, tokens, matched * self.pool.page_size))

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 99), draft=st.lists(st.integers(0, 1), max_size=5), kept=st.integers(0, 5))
    def round(self, number: int, draft: list[int], kept: int) -> None:
        """Compute what is missing and a drafted block behind it; keep some of the block and one token more."""
        sequence = self.pick(number)
        table, tokens = sequence.table, sequence.tokens
        before, free = list(table.pages), self.free_by_model()
        need = pages_for(len(tokens) + len(draft), self.pool.page_size) - len(before)
        fits = self.pool.reserve(table, len(tokens) + len(draft))
        assert fits == (need <= free)
        if not fits:
            assert table.pages == before
            assert self.free_by_model() == free == self.pool.num_free()
            return
        assert table.pages[: len(before)] == before
        self.memory.write(table, tokens + draft, sequence.num_computed, len(tokens) + len(draft))
        accepted = draft[:kept]
        sequence.num_computed = len(tokens) + len(accepted)
        sequence.tokens = [*tokens, *accepted, kept % 2]
        self.commit(sequence)
        self.pool.rollback(table, sequence.num_computed)
        assert len(table.pages) == pages_for(sequence.num_computed, self.pool.page_size)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 99), count=st.integers(1, 6))
    def prefill_chunk(self, number: int, count: int) -> None:
        sequence = self.pick(number)
        end = min(sequence.num_computed + count, len(sequence.tokens))
        if self.pool.reserve(sequence.table, end):
            self.memory.write(sequence.table, sequence.tokens, sequence.num_computed, end)
            sequence.num_computed = end
            self.commit(sequence)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 99))
    def finish(self, number: int) -> None:
        sequence = self.pick(number)
        self.running.remove(sequence)
        self.pool.release(sequence.table)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 99))
    def preempt_and_resume(self, number: int) -> None:
        sequence = self.pick(number)
        self.finish(number)
        self.start(sequence.tokens)

    @precondition(lambda self: hasattr(self, "pool"))
    @invariant()
    def sound(self) -> None:
        self.pool.check_integrity([sequence.table for sequence in self.running])
        assert self.pool.num_free() == self.free_by_model()
        writable: set[int] = set()
        for sequence in self.running:
            self.memory.assert_holds(sequence.table, sequence.tokens, sequence.num_computed)
            size = self.pool.page_size
            first, last = sequence.table.num_published * size, len(sequence.table.pages) * size
            own = set(slots(sequence.table, first, last, size))
            assert not own & writable, "two sequences write to one slot"
            writable |= own

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for sequence in self.running:
            self.pool.release(sequence.table)
        self.pool.check_integrity([])
        assert self.pool.num_free() == self.num_pages
        assert self.pool.stats().used == 0


class RoomyPoolTraces(PoolTraces):
    """Enough pages that nothing is ever evicted: every published text must be found again."""

    num_pages = 400


TestTightPool = PoolTraces.TestCase
TestTightPool.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestRoomyPool = RoomyPoolTraces.TestCase
TestRoomyPool.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
