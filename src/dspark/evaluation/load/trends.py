"""How the scheduler's choices follow the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dspark.evaluation.load.bars import SCHEDULER
from dspark.evaluation.load.figures import ArmFacts, Row

NOISE = 0.05
"""A step against the trend that is no larger than this share counts as none."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A figure over the number of users of a closed loop.

    Attributes:
        figure: what it is.
        drafter, traffic: whose.
        users, values: the points, users rising.
        falls: whether it should fall with load; otherwise it should rise.
    """

    figure: str
    drafter: str
    traffic: str
    users: tuple[int, ...]
    values: tuple[float, ...]
    falls: bool

    @property
    def holds(self) -> bool:
        """Whether it does, within noise, from each point to the next."""
        pairs = pairwise(self.values if self.falls else tuple(reversed(self.values)))
        return all(after <= before * (1 + NOISE) for before, after in pairs)


def trends_of(rows: Sequence[Row], arms: Sequence[ArmFacts]) -> tuple[Trend, ...]:
    """Mean verify length, which should fall with load, and the accepted share of verified rows, which should rise."""
    found = []
    for arm in arms:
        if arm.policy != SCHEDULER:
            continue
        ours = [row for row in rows if row.arm == arm.name and row.point.is_closed]
        for traffic in dict.fromkeys(row.point.traffic for row in ours):
            line = [row for row in ours if row.point.traffic == traffic]
            found.append(_trend("mean verify length", arm, traffic, [(r, r.verify_len) for r in line], falls=True))
            shares = [(row, row.accepted_share) for row in line if row.accepted_share is not None]
            found.append(_trend("accepted share of verified drafts", arm, traffic, shares, falls=False))
    return tuple(trend for trend in found if len(trend.values) > 1)


def _trend(figure: str, arm: ArmFacts, traffic: str, points: Sequence[tuple[Row, float]], *, falls: bool) -> Trend:
    ordered = sorted(points, key=lambda point: point[0].point.users)
    return Trend(
        figure=figure,
        drafter=arm.drafter,
        traffic=traffic,
        users=tuple(row.point.users for row, _ in ordered),
        values=tuple(value for _, value in ordered),
        falls=falls,
    )
