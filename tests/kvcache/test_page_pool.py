import pytest

from dspark.core import InputError
from dspark.kvcache import PagePool, PageTable, PoolStats


def started(pool: PagePool, tokens: list[int]) -> PageTable:
    """A sequence whose tokens are all computed and published."""
    table = pool.match_prefix(tokens)
    assert pool.reserve(table, len(tokens))
    pool.publish(table, tokens, len(tokens))
    return table


def test_reserve_takes_just_enough_pages_and_release_returns_them() -> None:
    pool = PagePool(4, 3)
    table = pool.match_prefix([1, 2])
    assert pool.reserve(table, 7)
    assert len(table.pages) == 3
    assert pool.num_free() == 1
    pool.check_integrity([table])
    pool.release(table)
    assert pool.num_free() == 4
    pool.release(table)
    pool.check_integrity([])


def test_reserve_is_all_or_nothing() -> None:
    pool = PagePool(3, 2)
    pool.release(started(pool, [1, 2]))
    table = pool.match_prefix([5])
    assert pool.reserve(table, 2)
    before = (list(table.pages), pool.stats())
    assert not pool.reserve(table, 7)
    assert (table.pages, pool.stats()) == before
    assert pool.reserve(table, 6)
    pool.check_integrity([table])


def test_reserve_of_what_is_there_changes_nothing() -> None:
    pool = PagePool(2, 4)
    table = pool.match_prefix([1])
    assert pool.reserve(table, 5)
    pages = list(table.pages)
    assert pool.reserve(table, 8)
    assert pool.reserve(table, 0)
    assert table.pages == pages


def test_match_leaves_a_token_to_compute() -> None:
    pool = PagePool(8, 2)
    first = started(pool, [1, 2, 3, 4])
    assert pool.match_prefix([1, 2, 3, 4]).pages == first.pages[:1]
    assert pool.match_prefix([1, 2, 3, 4, 9]).pages == first.pages
    assert pool.match_prefix([]).pages == []


def test_match_counts_and_shares_pages() -> None:
    pool = PagePool(8, 2)
    first = started(pool, [1, 2, 3, 4])
    second = pool.match_prefix([1, 2, 9, 9, 9])
    assert (second.num_matched, second.num_published, second.pages) == (1, 1, first.pages[:1])
    assert pool.reserve(second, 5)
    assert pool.stats().hit_tokens == 2
    pool.check_integrity([first, second])
    pool.release(first)
    pool.check_integrity([second])
    assert pool.num_free() == 8 - 3


def test_equal_pages_after_different_beginnings_are_different() -> None:
    pool = PagePool(8, 2)
    started(pool, [1, 1, 7, 7])
    assert len(pool.match_prefix([2, 2, 7, 7, 0]).pages) == 0
    assert len(pool.match_prefix([7, 7, 0]).pages) == 0


def test_partial_pages_are_not_found() -> None:
    pool = PagePool(8, 4)
    started(pool, [1, 2, 3])
    assert pool.match_prefix([1, 2, 3, 4, 5]).pages == []


def test_least_recently_used_text_goes_first_and_from_its_end() -> None:
    pool = PagePool(4, 1)
    old, new = [1, 2], [3, 4]
    pool.release(started(pool, old))
    pool.release(started(pool, new))
    pool.release(pool.match_prefix([*old, 0]))  # used again
    table = pool.match_prefix([9])
    assert pool.reserve(table, 1)
    assert len(pool.match_prefix([*new, 0]).pages) == 1
    assert len(pool.match_prefix([*old, 0]).pages) == 2
    assert pool.stats().evictions == 1


def test_held_pages_are_never_evicted() -> None:
    pool = PagePool(2, 1)
    held = started(pool, [1])
    pool.release(started(pool, [2]))
    table = pool.match_prefix([3])
    assert not pool.reserve(table, 2)
    assert pool.reserve(table, 1)
    assert held.pages != table.pages
    assert pool.match_prefix([1, 0]).pages == held.pages


def test_published_twice_keeps_the_first_and_stays_private() -> None:
    pool = PagePool(8, 2)
    first, second = pool.match_prefix([1, 2, 3]), pool.match_prefix([1, 2, 3])
    for table in (first, second):
        assert pool.reserve(table, 4)
        pool.publish(table, [1, 2, 3], 3)
    assert first.pages[0] != second.pages[0]
    assert pool.match_prefix([1, 2, 9]).pages == first.pages[:1]
    pool.publish(second, [1, 2, 3, 4], 4)  # continues the shared text with its own page
    assert pool.match_prefix([1, 2, 3, 4, 9]).pages == [first.pages[0], second.pages[1]]
    assert second.num_published == 2


def test_a_sequence_that_ends_keeps_the_beginning_of_its_text_fresh_even_in_the_page_of_another() -> None:
    pool = PagePool(4, 1)
    first, second = pool.match_prefix([1]), pool.match_prefix([1])
    for table in (first, second):
        assert pool.reserve(table, 1)
        pool.publish(table, [1], 1)
    pool.release(first)
    pool.release(started(pool, [5]))
    assert pool.reserve(second, 2)
    pool.publish(second, [1, 2], 2)
    pool.release(second)
    assert pool.reserve(pool.match_prefix([9]), 2)
    assert pool.match_prefix([5, 0]).pages == []
    assert len(pool.match_prefix([1, 2, 0]).pages) == 2


def test_text_is_published_again_when_its_beginning_was_evicted() -> None:
    pool = PagePool(4, 1)
    first, second = pool.match_prefix([1]), pool.match_prefix([1])
    for table in (first, second):
        assert pool.reserve(table, 1)
        pool.publish(table, [1], 1)
    assert pool.reserve(second, 2)
    pool.publish(second, [1, 2], 2)  # hangs under the first one's page
    pool.release(first)
    filler = pool.match_prefix([9])
    assert pool.reserve(filler, 2)
    assert pool.stats().evictions == 1
    pool.check_integrity([second, filler])
    assert pool.match_prefix([1, 2, 0]).pages == []
    pool.release(filler)
    assert pool.reserve(second, 3)
    pool.publish(second, [1, 2, 3], 3)
    assert pool.match_prefix([1, 2, 3, 0]).pages == second.pages


def test_rollback_gives_back_whole_pages_only() -> None:
    pool = PagePool(8, 4)
    table = pool.match_prefix([0])
    assert pool.reserve(table, 13)
    pages = list(table.pages)
    pool.rollback(table, 5)
    assert table.pages == pages[:2]
    assert pool.num_free() == 6
    pool.check_integrity([table])


def test_rollback_of_published_tokens_is_refused() -> None:
    pool = PagePool(4, 2)
    table = started(pool, [1, 2, 3, 4])
    with pytest.raises(AssertionError, match="committed"):
        pool.rollback(table, 3)


def test_without_prefix_cache_nothing_is_reused() -> None:
    pool = PagePool(4, 1, prefix_cache=False)
    pool.release(started(pool, [1, 2, 3]))
    assert pool.match_prefix([1, 2, 3, 4]).pages == []
    assert pool.stats() == PoolStats(used=0, cached=0, free=4, hit_tokens=0, evictions=0)


def test_hits_count_only_for_sequences_that_run() -> None:
    pool = PagePool(3, 1)
    pool.release(started(pool, [1, 2]))
    for _ in range(3):  # waits for room, matched anew each time
        table = pool.match_prefix([1, 2, 3])
        assert not pool.reserve(table, 4)
        pool.release(table)
    assert pool.stats().hit_tokens == 0
    table = pool.match_prefix([1, 2, 3])
    assert pool.reserve(table, 3)
    assert pool.stats().hit_tokens == 2


@pytest.mark.parametrize(("num_pages", "page_size"), [(0, 4), (-1, 4), (4, 0)])
def test_impossible_sizes(num_pages: int, page_size: int) -> None:
    with pytest.raises(InputError, match=f"got {num_pages} pages of {page_size}"):
        PagePool(num_pages, page_size)
