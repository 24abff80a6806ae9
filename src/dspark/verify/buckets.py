"""Ranks and shares within one long row of probabilities, without sorting it."""

from __future__ import annotations

import numpy as np

_BITS = 15
"""Leading bits of a positive float that name its bucket: the exponent and a few more, so order is kept."""


class Buckets:
    """One row, grouped by leading bits; only the bucket asked about is ever sorted.

    Args:
        row: [V] float32 or float64 >= 0; kept, not copied.
    """

    def __init__(self, row: np.ndarray) -> None:
        bits: np.ndarray = row.view(f"i{row.itemsize}")
        self.row = row
        self._bucket = (np.right_shift(bits, 8 * row.itemsize - 1 - _BITS) & ((1 << _BITS) - 1)).astype(np.intp)
        self._counts = np.bincount(self._bucket, minlength=1 << _BITS)[::-1].cumsum()
        self._masses = np.bincount(self._bucket, weights=row, minlength=1 << _BITS)[::-1].cumsum()

    def mass_of(self, ranks: int) -> float:
        """Sum of the ``ranks`` largest values."""
        place = int(self._counts.searchsorted(ranks))
        inside, before, mass = self._open(place)
        return mass + float(inside[: ranks - before].sum(dtype=np.float64))

    def ranks_reaching(self, mass: float) -> int:
        """Least number of largest values whose sum is at least ``mass``; all of them if none is."""
        place = int(self._masses.searchsorted(mass))
        if place == len(self._masses):
            return len(self.row)
        inside, before, start = self._open(place)
        ends = start + inside.cumsum(dtype=np.float64)
        return before + min(int(ends.searchsorted(mass)) + 1, len(inside))

    def at_rank(self, rank: int) -> tuple[float, int, int]:
        """The ``rank``-th largest value (from 1), how many values equal to it rank so high, and how many equal it."""
        inside, before, _ = self._open(int(self._counts.searchsorted(rank)))
        value = inside[rank - before - 1]
        above = int((inside > value).sum())
        return float(value), rank - before - above, int((inside == value).sum())

    def _open(self, place: int) -> tuple[np.ndarray, int, float]:
        """Values of the ``place``-th bucket from the top, descending; number and sum of all values above it."""
        inside = -np.sort(-self.row[self._bucket == (1 << _BITS) - 1 - place])
        before = int(self._counts[place - 1]) if place else 0
        return inside, before, float(self._masses[place - 1]) if place else 0.0
