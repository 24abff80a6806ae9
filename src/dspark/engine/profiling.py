"""Measuring what steps cost on this machine, through the very path that will run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dspark.drafters import Drafter
from dspark.engine.profile_plan import ProfilePlan, block_lengths
from dspark.engine.profile_stand import ProfileStand
from dspark.scheduling import CostModel, Measurement, ProfileIdentity, TimeTable
from dspark.target import PackedTarget

Tell = Callable[[int, str], None]
"""Told how many points are measured, and what is measured now."""


def tell_nobody(done: int, note: str) -> None:
    """Tell nobody."""


_WARM = 0.05
"""Points faster than this many seconds are run once before they are timed."""

_DRAFT_SHARE, _FIRST_SHARE = 0.15, 0.6
"""Shares of the time after which no further points are begun: of drafting, and of everything."""

_NARROW = 4
"""Points up to this width are measured whatever they take."""


@dataclass(frozen=True, kw_only=True)
class _Point:
    """One thing to time, ``width`` wide and ``depth`` deep."""

    run: Callable[[int, int], tuple[float, int]]
    width: int
    depth: int


class Profiler:
    """Times points again and again, in turns, so that what disturbs the machine for a while falls on all of them.

    Args:
        plan: repeats and time.
        tell: told about progress.
    """

    def __init__(self, plan: ProfilePlan, tell: Tell) -> None:
        self._plan, self._tell = plan, tell
        self._start = time.perf_counter()
        self._found: dict[_Point, list[tuple[float, int]]] = defaultdict(list)

    @property
    def seconds(self) -> float:
        """Time taken so far."""
        return time.perf_counter() - self._start

    def explore(self, rows: Sequence[list[_Point]], start: float, stop: float) -> list[_Point]:
        """Time points once: powers of two as wide as the time allows, then what lies between; returns those that were.

        Args:
            rows: points of rising width.
            start: share of the time that has passed when this begins, at most.
            stop: share of the time that it ends by.
        """
        coarse = [row for row in rows if row[0].width.bit_count() == 1]
        done: list[_Point] = []
        for part, share in ((coarse, (start + stop) / 2), ([row for row in rows if row not in coarse], stop)):
            for row in part:
                if self.seconds > share * self._plan.seconds and row[0].width > _NARROW:
                    break
                for point in row:
                    self._time(point, warm=True)
                done += row
        return sorted(done, key=lambda point: point.width)

    def repeat(self, points: list[_Point]) -> None:
        """Time all points again, up to the planned repeats or until time is up."""
        for _ in range(1, self._plan.repeats):
            for point in points:
                if self.seconds > self._plan.seconds:
                    return
                self._time(point, warm=False)

    def table(self, points: list[_Point]) -> TimeTable | None:
        """What was found; None without points."""
        measured = [
            Measurement(
                width=point.width,
                depth=point.depth,
                ran=self._found[point][-1][1],
                seconds=tuple([seconds for seconds, _ in self._found[point]]),
            )
            for point in points
        ]
        return TimeTable.of(measured) if measured else None

    def _time(self, point: _Point, *, warm: bool) -> None:
        found = point.run(point.width, point.depth)
        if warm and found[0] < _WARM:
            found = point.run(point.width, point.depth)
        self._found[point].append(found)
        self._tell(sum(map(len, self._found.values())), f"width {point.width}, depth {point.depth}")


def measure_costs(
    target: PackedTarget,
    drafter: Drafter,
    identity: ProfileIdentity,
    plan: ProfilePlan | None = None,
    *,
    tell: Tell = tell_nobody,
) -> CostModel:
    """Time steps of all widths, and drafting. Whatever engine the target served loses its memory.

    Args:
        target: the model.
        drafter: the drafter.
        identity: of what is measured.
        plan: what and how long; None for the usual.
        tell: told about progress.
    """
    plan = plan or ProfilePlan()
    stand, profiler = ProfileStand(target, drafter, plan), Profiler(plan, tell)
    blocks = block_lengths(drafter.block_size)
    try:
        drafting = _rows(stand.draft, plan.request_widths() if blocks else [], blocks)
        drafts = profiler.explore(drafting, 0.0, _DRAFT_SHARE)
        steps = profiler.explore(_rows(stand.verify, plan.row_widths(), stand.contexts), _DRAFT_SHARE, _FIRST_SHARE)
        profiler.repeat([*steps, *drafts])
    finally:
        stand.close()
    verify = profiler.table(steps)
    assert verify is not None, "a plan has at least one width"
    return CostModel(
        identity=identity,
        verify=verify,
        draft=profiler.table(drafts),
        note=f"measured in {profiler.seconds:.1f} s, up to {verify.widths[-1]} rows",
    )


def count_points(drafter: Drafter, plan: ProfilePlan) -> int:
    """How many timings there are at most."""
    points = len(plan.row_widths()) * len(set(plan.contexts))
    return plan.repeats * (points + len(plan.request_widths()) * len(block_lengths(drafter.block_size)))


def _rows(run: Callable[[int, int], tuple[float, int]], widths: list[int], depths: list[int]) -> list[list[_Point]]:
    """Points of every width, row by row."""
    return [[_Point(run=run, width=width, depth=depth) for depth in depths] for width in widths]
