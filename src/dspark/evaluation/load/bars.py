"""What a load test is made for: does the scheduler lose anywhere, and does it win where it should?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dspark.evaluation.arms import PLAIN
from dspark.evaluation.bootstrap import Bootstrapped, Estimate, geometric_mean_of
from dspark.evaluation.load.figures import ArmFacts, LoadFigures
from dspark.evaluation.load.plan import Point
from dspark.evaluation.load.traffic import MIXED

SCHEDULER = "async"
"""Policy that is asked about."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One claim at one place.

    Attributes:
        claim: what is compared.
        drafter: with whose drafts.
        place: at which load, or over which.
        against: the arm in the denominator.
        ratio: the figure.
        goal: what it should reach.
    """

    claim: str
    drafter: str
    place: str
    against: str
    ratio: Estimate
    goal: float

    @property
    def verdict(self) -> str:
        """``yes`` or ``no`` where the whole interval says so, else ``likely`` or ``unlikely``, by the figure itself."""
        low, high = self.ratio.low, self.ratio.high
        if self.ratio.value >= self.goal:
            return "yes" if low is not None and low >= self.goal else "likely"
        return "no" if high is not None and high < self.goal else "unlikely"


BEST, SINGLE, WHOLE, NEVER = (
    "async / best fixed length",
    "async / best single fixed length",
    "async / whole blocks, most users",
    "async / plain",
)
"""The claims."""

_GOALS = {BEST: 0.97, SINGLE: 1.05, WHOLE: 1.25, NEVER: 0.98}


def bars_of(figures: LoadFigures) -> tuple[Bar, ...]:
    """All claims that the arms allow, for every drafter that the scheduler ran with.

    The best single length is looked for over all loads with mixed traffic or arrivals of their own.
    The best fixed length is the one with the best figure (plain decoding is length 0). Being the best of several that
    are measured with noise, it looks a little better than it is, never worse.
    """
    found: list[Bar] = []
    for arm in figures.arms:
        if arm.policy == SCHEDULER:
            found.extend(_bars(figures, arm))
    return tuple(found)


def _bars(figures: LoadFigures, arm: ArmFacts) -> Iterator[Bar]:
    fixed = [other for other in figures.arms if other.length is not None and other.drafter in ("", arm.drafter)]
    drafted = len(fixed) > 1
    for point in figures.points:
        if drafted:
            best = max(fixed, key=lambda other: figures.service(point, other.name).value)
            yield _bar(BEST, arm, point.name, best.name, figures.ratio(point, arm.name, best.name))
    varied = [point for point in figures.points if point.traffic == MIXED or not point.is_closed]
    if drafted and varied:
        yield _single(figures, arm, fixed, varied)
    for point in _fullest(figures.points):
        for other in fixed:
            if other.length == other.block_size > 0:
                yield _bar(WHOLE, arm, point.name, other.name, figures.ratio(point, arm.name, other.name))
    for point in figures.points:
        yield _bar(NEVER, arm, point.name, PLAIN, figures.ratio(point, arm.name, PLAIN))


def _single(figures: LoadFigures, arm: ArmFacts, fixed: Sequence[ArmFacts], points: Sequence[Point]) -> Bar:
    """Against the one length that is best over all loads where load or difficulty varies."""
    ratios = {
        other.name: geometric_mean_of([figures.ratio(point, arm.name, other.name) for point in points])
        for other in fixed
    }
    best = min(ratios, key=lambda name: ratios[name].value)
    return _bar(SINGLE, arm, f"geometric mean of {len(points)} loads", best, ratios[best])


def _fullest(points: Sequence[Point]) -> list[Point]:
    """The closed loops with the most users."""
    closed = [point for point in points if point.is_closed]
    most = max((point.users for point in closed), default=0)
    return [point for point in closed if point.users == most]


def _bar(claim: str, arm: ArmFacts, place: str, against: str, ratio: Bootstrapped) -> Bar:
    return Bar(
        claim=claim,
        drafter=arm.drafter,
        place=place,
        against=against,
        ratio=ratio.estimate(),
        goal=_GOALS[claim],
    )


@dataclass(frozen=True, kw_only=True)
class Captured:
    """Share of the oracle's gain over plain decoding that the scheduler has.

    Attributes:
        drafter: with whose drafts.
        place: at which load.
        share: 1 is the oracle itself.
    """

    drafter: str
    place: str
    share: Estimate


def captured(figures: LoadFigures) -> tuple[Captured, ...]:
    """At every load where the oracle gains."""
    return tuple(
        Captured(drafter=arm.drafter, place=point.name, share=share.estimate())
        for arm in figures.arms
        if arm.policy == SCHEDULER
        for point in figures.points
        if (share := figures.oracle_share(point, arm)) is not None
    )
