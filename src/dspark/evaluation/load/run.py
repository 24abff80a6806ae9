"""All arms take turns in short segments, load after load, so that drift of the machine cancels.

Another arm begins with every load, and at every load with every repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from dspark.evaluation.arms import Progress, rotated
from dspark.evaluation.load.arrivals import arrival_times, shape
from dspark.evaluation.load.drive import MakeClock, Server, Window, drive_closed, drive_open
from dspark.evaluation.load.plan import CLOSED, LoadPlan, Point
from dspark.evaluation.load.sample import Sample, sample_of
from dspark.evaluation.load.texts import TextCheck, check_texts
from dspark.evaluation.load.trace import Trace
from dspark.evaluation.load.traffic import Ids, Traffic

_PILOT = 0.5
"""Share of a segment for which plain decoding is tried out first at every load."""


class Contestant(Protocol):
    """An arm of a load test."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def open(self, point: Point, prompts: Sequence[Ids], max_tokens: int) -> Server:
        """A fresh engine for a segment; the one before is gone."""
        ...


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One turn of one arm.

    Attributes:
        point: the load.
        arm: whose turn.
        repeat: 0-based.
        sample: what came of it.
        texts: whether it wrote what plain decoding writes.
    """

    point: Point
    arm: str
    repeat: int
    sample: Sample
    texts: TextCheck


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """Work of a segment, the same for every arm.

    Attributes:
        tokens: that end a segment of a closed loop, by number of users.
        capacity: requests per second that plain decoding serves with the most users.
        seconds: that a segment takes plain decoding, filling the engine included, by load.
    """

    tokens: Mapping[int, int]
    capacity: float
    seconds: Mapping[Point, float]


class LoadTest:
    """A plan, ready to run.

    Args:
        contestants: at least one; the first is plain decoding.
        traffics: at least one.
        plan: sizes.
        expected: by prompt, the whole greedy text of plain decoding.
        make_clock: gives every segment its time.
    """

    def __init__(
        self,
        contestants: Sequence[Contestant],
        traffics: Sequence[Traffic],
        plan: LoadPlan,
        expected: Mapping[Ids, Ids],
        make_clock: MakeClock,
    ) -> None:
        self.contestants, self.plan = contestants, plan
        self.points = plan.points(traffics)
        self._traffics = {traffic.name: traffic for traffic in traffics}
        self._expected, self._make_clock = expected, make_clock

    def budgets(self) -> Budgets:
        """Let plain decoding say how much work fits a segment; every other arm writes a little too, to warm up."""
        plan, first = self.plan, next(iter(self._traffics.values()))
        for contestant in self.contestants[1:]:
            self._closed(contestant, first, plan.concurrency[0], Window(tokens=1), 0)
        rates, filling = {}, {}
        for users in plan.concurrency:
            before = self._make_clock().now()
            window = Window(seconds=_PILOT * plan.segment_seconds)
            tried = sample_of(self._closed(self.contestants[0], first, users, window, 0), plan.goal)
            rates[users] = tried.tokens / tried.seconds
            filling[users] = self._make_clock().now() - before - tried.seconds
        answer = fmean(len(self._expected[prompt][: plan.max_tokens]) for prompt in first.prompts)
        watched = {True: plan.segment_seconds, False: plan.open_seconds}
        return Budgets(
            tokens={users: max(round(rate * plan.segment_seconds), 1) for users, rate in rates.items()},
            capacity=rates[plan.concurrency[-1]] / answer,
            seconds={point: watched[point.is_closed] + filling[point.users] for point in self.points},
        )

    def seconds(self, budgets: Budgets) -> float:
        """How long a whole run takes if all arms are as fast as plain decoding."""
        return sum(budgets.seconds.values()) * len(self.contestants) * self.plan.repeats

    def run(self, budgets: Budgets, progress: Progress) -> Iterator[tuple[Segment, ...]]:
        """All segments; those of one load and repeat, one per arm, come together.

        Args:
            budgets: from :meth:`budgets`.
            progress: called after every segment with the seconds that were expected for all so far.
        """
        done = 0.0
        for repeat in range(self.plan.repeats):
            for place, point in enumerate(self.points):
                group = []
                for contestant in rotated(self.contestants, repeat + place):
                    group.append(self._segment(contestant, point, repeat, budgets))
                    done += budgets.seconds[point]
                    progress(round(done), f"{point.name} {contestant.name}")
                yield tuple(group)

    def _segment(self, contestant: Contestant, point: Point, repeat: int, budgets: Budgets) -> Segment:
        traffic = self._traffics[point.traffic]
        if point.is_closed:
            window = Window(tokens=budgets.tokens[point.users])
            trace = self._closed(contestant, traffic, point.users, window, repeat)
        else:
            trace = self._open(contestant, traffic, point, repeat, budgets.capacity)
        return Segment(
            point=point,
            arm=contestant.name,
            repeat=repeat,
            sample=sample_of(trace, self.plan.goal),
            texts=check_texts(trace, self._expected),
        )

    def _closed(self, contestant: Contestant, traffic: Traffic, users: int, window: Window, repeat: int) -> Trace:
        plan, point = self.plan, Point(traffic=traffic.name, arrivals=CLOSED, users=users)
        server = contestant.open(point, traffic.prompts, plan.max_tokens)
        return drive_closed(server, traffic.jobs(plan.max_tokens, plan.seed, repeat), users, window, self._make_clock())

    def _open(self, contestant: Contestant, traffic: Traffic, point: Point, repeat: int, capacity: float) -> Trace:
        plan = self.plan
        course = shape(point.arrivals, capacity, plan.open_seconds)
        times = arrival_times(course, plan.seed, repeat) or (0.0,)
        server = contestant.open(point, traffic.prompts, plan.max_tokens)
        return drive_open(server, traffic.jobs(plan.max_tokens, plan.seed, repeat), times, self._make_clock())
