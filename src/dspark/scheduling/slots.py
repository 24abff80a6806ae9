"""Places in a policy's tables, and who sits there now."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from dspark.scheduling.step_view import Ints


class SlotBook:
    """Gives every request in progress a slot, and a generation that no other request ever had.

    The engine keeps one, retains the requests that are in progress, and asks for the slots of those of a step.

    Args:
        num_slots: most requests in progress at a time.
    """

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots - 1, -1, -1))
        self._held: dict[Hashable, tuple[int, int]] = {}
        self._next = 0

    def slots(self, keys: Sequence[Hashable]) -> tuple[Ints, Ints]:
        """Slots and generations [R] of requests, each named by what stays the same; new ones get a free slot."""
        seats = [self._held.get(key) or self._seat(key) for key in keys]
        table = np.array(seats, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def release(self, key: Hashable) -> None:
        """Free the slot of a request that has ended; one that never had any is no error."""
        seat = self._held.pop(key, None)
        if seat is not None:
            self._free.append(seat[0])

    def retain(self, keys: Collection[Hashable]) -> None:
        """Free the slots of all requests but these."""
        for key in [key for key in self._held if key not in keys]:
            self.release(key)

    def _seat(self, key: Hashable) -> tuple[int, int]:
        assert self._free, "more requests in progress than slots"
        self._next += 1
        self._held[key] = (self._free.pop(), self._next)
        return self._held[key]


class Ledger:
    """Which generation each slot of a table belongs to.

    Args:
        num_slots: slots of the table.
    """

    def __init__(self, num_slots: int) -> None:
        self._generations = np.full(num_slots, -1, np.int64)

    def claim(self, slots: Ints, generations: Ints) -> Ints:
        """Hand slots over to their present owners; returns those that changed hands and must be cleared."""
        changed: Ints = slots[self._generations[slots] != generations]
        self._generations[slots] = generations
        assert self.owned(slots, generations).all(), "two requests share a slot"
        return changed

    def owned(self, slots: Ints, generations: Ints) -> np.ndarray:
        """[R] whether a slot still belongs to that generation."""
        return self._generations[slots] == generations
