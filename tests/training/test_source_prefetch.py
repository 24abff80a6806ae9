"""Items made ahead in another thread: the same items, in order, with their errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from dspark.training.prefetch import Ahead


def test_the_same_items_in_order() -> None:
    with Ahead(iter(range(50)), depth=3) as ahead:
        assert list(ahead) == list(range(50))
        assert list(ahead) == []


def test_items_are_made_while_the_reader_works_but_not_too_many() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    with Ahead(items(), depth=2) as ahead:
        assert next(ahead) == 0
        deadline = time.monotonic() + 10
        while len(made) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert made == [0, 1, 2, 3], "one taken, two waiting, one in the making"


def test_an_error_comes_where_its_item_is_due() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    with Ahead(items()) as ahead:
        assert next(ahead) == 1
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                next(ahead)


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_leaving_stops_the_thread(taken: int) -> None:
    def forever() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    before = threading.active_count()
    with Ahead(forever()) as ahead:
        assert [next(ahead) for _ in range(taken)] == list(range(taken))
    assert threading.active_count() == before
    assert list(ahead) == []
