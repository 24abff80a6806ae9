"""Known-bad states: the checker must name each of them."""

from collections.abc import Callable

import pytest

from dspark.kvcache import PagePool, PageTable

Damage = Callable[[PagePool, PageTable], object]

DAMAGES: dict[str, Damage] = {
    "counted 2 times": lambda pool, table: pool._refs.__setitem__(table.pages[0], 2),
    "in 2 places": lambda pool, table: pool._free.append(table.pages[2]),
    "in 0 places": lambda pool, table: pool._free.pop(),
    "outside the pool": lambda pool, table: pool._free.append(99),
    "is held 0 times": lambda pool, table: table.pages.pop(),
    "wrong key": lambda pool, table: setattr(table.tip, "tokens", (8, 8)),
    "left the index": lambda pool, table: setattr(table.tip, "alive", False),
    "indexed twice": lambda pool, table: pool._index.node_of.pop(table.pages[0]),
    "cannot be reached": lambda pool, table: pool._index.root.children.clear(),
    "not final": lambda pool, table: pool._index.insert(table.tip, (9, 9), table.pages[2]),
    "free but indexed": lambda pool, table: pool._index.insert(table.tip, (9, 9), pool._free[-1]),
    "claims more": lambda pool, table: setattr(table, "num_published", 4),
    "pages but is 2 deep": lambda pool, table: setattr(table, "num_published", 3),
    "not full": lambda pool, table: pool._index.insert(table.tip, (9,), table.pages[2]),
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_damage_is_named(reason: str) -> None:
    pool = PagePool(6, 2)
    tokens = [1, 2, 3, 4, 5]
    table = pool.match_prefix(tokens)
    assert pool.reserve(table, 5)
    pool.publish(table, tokens, 5)
    pool.check_integrity([table])
    DAMAGES[reason](pool, table)
    with pytest.raises(AssertionError, match=reason):
        pool.check_integrity([table])


def test_a_shared_page_that_was_never_published_is_named() -> None:
    pool = PagePool(4, 2)
    first, second = pool.match_prefix([0]), PageTable()
    assert pool.reserve(first, 1)
    second.pages.append(first.pages[0])
    pool._refs[first.pages[0]] = 2
    with pytest.raises(AssertionError, match="never published"):
        pool.check_integrity([first, second])


def test_a_forgotten_table_is_a_leak() -> None:
    pool = PagePool(4, 2)
    assert pool.reserve(pool.match_prefix([0]), 3)
    with pytest.raises(AssertionError, match="is held 0 times but counted 1"):
        pool.check_integrity([])
