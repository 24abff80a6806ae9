"""Survivals that the confidence head stated in past steps, per request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspark.scheduling.step_view import Floats, Ints

KEPT = 16
"""Rounds kept of each request."""

WANTED = 32
"""A capacity is searched over at least so many past blocks, if there are: many requests have them in one step."""


class SurvivalHistory:
    """The last rounds of S slots, blocks of G positions.

    Args:
        num_slots: S.
        block_size: G.
    """

    def __init__(self, num_slots: int, block_size: int) -> None:
        self._survival: NDArray[np.float32] = np.zeros((num_slots, KEPT, block_size), np.float32)
        self._count = np.zeros(num_slots, np.int64)

    def clear(self, slots: Ints) -> None:
        """Make slots those of fresh requests, without a past."""
        self._count[slots] = 0

    def push(self, slots: Ints, survival: Floats) -> None:
        """Append a round to slots [R]: [R, g] survivals, below 0 where nothing was proposed; g at most G."""
        places = self._count[slots] % KEPT
        self._survival[slots, places, : survival.shape[1]] = survival
        if survival.shape[1] < self._survival.shape[2]:
            self._survival[slots, places, survival.shape[1] :] = -1.0
        self._count[slots] += 1

    def snapshots(self, slots: Ints, expected: Floats) -> Floats:
        """[M, R, G] the last M rounds of each request, newest first; expected survivals [R, G] where nothing is known.

        M is 1 for :data:`WANTED` requests and more, and so large that there are as many blocks for fewer.
        """
        rounds = min(max(-(-WANTED // max(len(slots), 1)), 1), KEPT)
        ages = np.arange(1, rounds + 1)[:, None]
        count = self._count[slots]
        rounds_back = self._survival[slots, (count - ages) % KEPT]
        return np.where((ages <= count)[..., None] & (rounds_back >= 0), rounds_back, expected)
