"""Committed rows on their way into the drafter's context."""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.core import CommittedRows
from dspark.drafters import Drafter

_MOST = 256
"""Rows that may wait; more than that are taken in by themselves."""


class Upkeep:
    """Hands committed rows to the drafter: at once, or together when somebody will draft again.

    While nobody drafts, keeping the context up to date step by step would read the drafter's weights for a row or two
    at a time, which plain decoding does not pay. So these rows wait, and are taken in before the next block is
    proposed; pages found in the prefix cache are complete by then too. Where a page has changed hands meanwhile, the
    later row of a slot wins.

    Args:
        drafter: whose context it is.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._waiting: list[CommittedRows] = []

    @property
    def num_waiting(self) -> int:
        """Rows that wait."""
        return sum(len(rows.positions) for rows in self._waiting)

    def take(self, rows: CommittedRows, *, later: bool = False) -> None:
        """Give rows to the drafter.

        Args:
            rows: what has become context.
            later: they may wait.
        """
        waiting = [*self._waiting, rows]
        if later and self.num_waiting + len(rows.positions) <= _MOST:
            self._waiting = waiting
        else:
            self._observe(waiting)

    def catch_up(self) -> None:
        """Give everything that waits to the drafter."""
        if self._waiting:
            self._observe(self._waiting)

    def _observe(self, waiting: list[CommittedRows]) -> None:
        self._drafter.observe(waiting[0] if len(waiting) == 1 else _latest(_joined(waiting)))
        self._waiting = []


def _joined(parts: list[CommittedRows]) -> CommittedRows:
    """All rows, in order."""
    return CommittedRows(
        features=_cat([part.features for part in parts]),
        positions=torch.cat([part.positions for part in parts]),
        kv_slots=torch.cat([part.kv_slots for part in parts]),
        token_ids=_cat([part.token_ids for part in parts]),
        previous_slots=_cat([part.previous_slots for part in parts]),
    )


def _cat(parts: list[Tensor | None]) -> Tensor | None:
    there = [part for part in parts if part is not None]
    return torch.cat(there) if len(there) == len(parts) else None


def _latest(rows: CommittedRows) -> CommittedRows:
    """The last row of every slot."""
    slots, place = torch.unique(rows.kv_slots, return_inverse=True)
    if len(slots) == len(place):
        return rows
    order = torch.arange(len(place), device=place.device)
    return rows.take(torch.zeros_like(slots).scatter_reduce_(0, place, order, "amax"))
