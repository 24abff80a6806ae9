import pytest

from dspark.kvcache import PageTable, pages_for, pages_of, slots


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_pages_for(tokens: int, pages: int) -> None:
    assert pages_for(tokens, 4) == pages


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_slots_follow_the_pages(page_size: int) -> None:
    table = PageTable(pages=[7, 2, 5])
    size = 3 * page_size
    expected = [table.pages[p // page_size] * page_size + p % page_size for p in range(size)]
    for start in range(size + 1):
        for end in range(start, size + 1):
            assert slots(table, start, end, page_size) == expected[start:end]


def test_slots_outside_the_table_are_refused() -> None:
    with pytest.raises(AssertionError, match="position 4"):
        slots(PageTable(pages=[0]), 0, 5, 4)
    with pytest.raises(AssertionError, match="not at -1"):
        slots(PageTable(pages=[0]), -1, 2, 4)


def test_pages_of_pads_with_zero() -> None:
    array = pages_of([PageTable(pages=[3, 1]), PageTable(), PageTable(pages=[9])])
    assert array.tolist() == [[3, 1], [0, 0], [9, 0]]
    assert pages_of([PageTable()]).shape == (1, 1)
    assert pages_of([]).shape == (0, 1)
