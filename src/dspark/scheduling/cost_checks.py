"""Does a profile make sense? Each doubt is one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dspark.scheduling.cost_model import CostModel
from dspark.scheduling.time_table import TimeTable

FALL = 0.15
"""A wider step may be this much faster than a narrower one before it is doubted: kernels do have steps downwards."""

SPREAD = 0.25
"""Relative distance of the quartiles of a repeated time above which it is doubted."""

_FLAT, _RANGE = 1.05, 16


def check_profile(model: CostModel) -> tuple[str, ...]:
    """What is doubtful about a profile; empty if nothing is.

    A width that was not really run never gets this far: :meth:`TimeTable.of` refuses it.
    """
    doubts = list(_doubts("a step", "rows", model.verify))
    if model.draft is not None:
        doubts += _doubts("drafting", "requests", model.draft, must_rise=False)
    return tuple(doubts)


def _doubts(what: str, unit: str, table: TimeTable, must_rise: bool = True) -> Iterator[str]:
    widths = table.widths
    for depth, row in zip(table.depths, table.seconds, strict=True):
        times = np.array(row)
        slowest = np.maximum.accumulate(times)
        worst = int(np.argmin(times / slowest))
        if times[worst] < (1 - FALL) * slowest[worst]:
            before = int(np.argmax(times[: worst + 1]))
            yield (
                f"{what} of {widths[worst]} {unit} took {1e3 * times[worst]:.1f} ms, one of {widths[before]} took "
                f"{1e3 * times[before]:.1f} ms (depth {depth}): time should rise with width; was the machine busy?"
            )
        if must_rise and widths[-1] >= _RANGE * widths[0] and times[-1] < _FLAT * times[0]:
            yield (
                f"{what} of {widths[-1]} {unit} takes as long as one of {widths[0]} ({1e3 * times[-1]:.1f} ms, depth "
                f"{depth}): was one width measured at every point?"
            )
    if table.spread is not None:
        spread = np.array(table.spread)
        if spread.max() > SPREAD:
            row_at, column = divmod(int(spread.argmax()), len(widths))
            yield (
                f"repeated times of {what} of {widths[column]} {unit} (depth {table.depths[row_at]}) differ by "
                f"{spread.max():.0%}, at most {SPREAD:.0%} was expected: was the machine busy?"
            )
