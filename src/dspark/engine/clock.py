"""Where the time of a step goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepClock:
    """Adds up seconds per activity; whatever is not inside one is host time."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextmanager
    def of(self, activity: str) -> Iterator[None]:
        """Charge the body to an activity."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._spent[activity] = self._spent.get(activity, 0.0) + time.perf_counter() - start

    def seconds(self, activity: str) -> float:
        """Seconds charged so far."""
        return self._spent.get(activity, 0.0)

    def rest(self) -> float:
        """Seconds since the start that were not charged to any activity."""
        return time.perf_counter() - self._start - sum(self._spent.values())
