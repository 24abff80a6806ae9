"""Faults of the field that a page pool can cause or prevent."""

import pytest

from dspark.kvcache import PagePool, PageTable, pages_of, slots

from .simulated_memory import SimulatedMemory

GAMMA = 7


def decode_round(pool: PagePool, memory: SimulatedMemory, table: PageTable, tokens: list[int], kept: int) -> list[int]:
    """Verify a block of GAMMA drafts, keep some, commit, roll back; the tokens afterwards."""
    draft = [1000 + i for i in range(GAMMA)]
    assert pool.reserve(table, len(tokens) + GAMMA)
    memory.write(table, tokens + draft, len(tokens) - 1, len(tokens) + GAMMA)
    tokens = [*tokens, *draft[:kept], 2000 + kept]
    pool.publish(table, tokens, len(tokens) - 1)
    pool.rollback(table, len(tokens) - 1)
    return tokens


def prefilled(pool: PagePool, memory: SimulatedMemory, tokens: list[int]) -> PageTable:
    table = pool.match_prefix(tokens)
    assert pool.reserve(table, len(tokens))
    memory.write(table, tokens, table.num_matched * pool.page_size, len(tokens))
    pool.publish(table, tokens, len(tokens))
    return table


@pytest.mark.pitfall(21)
def test_resume_after_preemption_finds_all_full_pages_again() -> None:
    pool = PagePool(16, 4)
    memory = SimulatedMemory(pool)
    tokens = list(range(9))
    table = prefilled(pool, memory, tokens)
    tokens = decode_round(pool, memory, table, [*tokens, 50], kept=6)
    pages, computed = list(table.pages), len(tokens) - 1
    pool.release(table)
    resumed = pool.match_prefix(tokens)
    assert resumed.pages == pages[: computed // 4]
    memory.assert_holds(resumed, tokens, resumed.num_matched * 4)


@pytest.mark.pitfall(22)
def test_prefix_cache_hits_while_blocks_are_drafted_and_rolled_back() -> None:
    pool = PagePool(32, 4)
    memory = SimulatedMemory(pool)
    tokens = list(range(10))
    table = prefilled(pool, memory, tokens)
    tokens.append(50)
    for kept in (0, 7, 3):
        tokens = decode_round(pool, memory, table, tokens, kept)
    follow_up = [*tokens, 60, 61, 62]
    second = pool.match_prefix(follow_up)
    assert second.num_matched == (len(tokens) - 1) // 4
    memory.assert_holds(second, follow_up, second.num_matched * 4)


@pytest.mark.pitfall(23)
def test_rows_behind_a_warm_hit_are_not_shifted() -> None:
    pool = PagePool(12, 4)
    memory = SimulatedMemory(pool)
    pool.release(prefilled(pool, memory, list(range(10))))
    pool.release(prefilled(pool, memory, list(range(100, 122))))  # other text in between
    tokens = [*range(8), 70, 71, 72]
    table = prefilled(pool, memory, tokens)
    assert table.num_matched == 2
    memory.assert_holds(table, tokens, len(tokens))


@pytest.mark.pitfall(24)
@pytest.mark.parametrize("page_size", [4, 8, 16])
def test_a_block_at_the_end_of_a_page_touches_no_neighbour(page_size: int) -> None:
    pool = PagePool(64, page_size)
    memory = SimulatedMemory(pool)
    texts = [[100 * number + i for i in range(2 * page_size - 1)] for number in range(4)]
    tables = [prefilled(pool, memory, text) for text in texts]
    for number, table in enumerate(tables):
        assert pool.reserve(table, len(texts[number]) + GAMMA + 1)
        texts[number] += [5000 + number] * (GAMMA + 1)
        memory.write(table, texts[number], 2 * page_size - 1, len(texts[number]))
    for text, table in zip(texts, tables, strict=True):
        memory.assert_holds(table, text, len(text))
    pool.check_integrity(tables)


@pytest.mark.pitfall(24)
def test_a_short_row_of_the_page_array_shows_no_page_of_its_neighbour() -> None:
    pool = PagePool(16, 4)
    long, short = pool.match_prefix([0]), pool.match_prefix([1])
    assert pool.reserve(long, 15)
    assert pool.reserve(short, 5)
    array = pages_of([long, short])
    assert array[0].tolist() == long.pages
    assert array[1].tolist() == [*short.pages, 0, 0]
    assert not set(slots(long, 0, 15, 4)) & set(slots(short, 0, 5, 4))


@pytest.mark.pitfall(25)
def test_a_prefix_is_not_found_before_its_rows_are_written() -> None:
    pool = PagePool(16, 4)
    memory = SimulatedMemory(pool)
    tokens = list(range(12))
    first, second = pool.match_prefix(tokens), pool.match_prefix(tokens)  # admitted in the same step
    assert pool.reserve(first, 12)
    assert pool.match_prefix(tokens).pages == []
    assert pool.reserve(second, 12)
    assert not set(first.pages) & set(second.pages)
    memory.write(first, tokens, 0, 6)
    pool.publish(first, tokens, 6)
    assert pool.match_prefix(tokens).pages == first.pages[:1]  # the half-written second page is not shown
    memory.write(second, tokens, 0, 12)
    pool.publish(second, tokens, 12)
    third = pool.match_prefix([*tokens, 99])
    memory.assert_holds(third, tokens, 12)
