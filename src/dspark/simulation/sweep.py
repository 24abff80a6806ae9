"""Several policies under several loads, on the same texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dspark.core import InputError
from dspark.evaluation.load.arrivals import Stretch, arrival_times
from dspark.evaluation.load.figures import LEAST_GAIN, ORACLE
from dspark.evaluation.load.latency import LatencyTarget
from dspark.simulation.arrivals import ClosedLoop, OpenLoop
from dspark.simulation.cluster import Cluster, simulate
from dspark.simulation.figures import Course, Figures, steady, whole
from dspark.simulation.planners import make_planner
from dspark.simulation.texts import Texts

PLAIN = "fixed:0"
"""The policy that decodes plainly."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What users do.

    Attributes:
        name: what tables call it.
        requests: how many come.
        users: of a closed loop; None for an open one.
        rate: course of the arrival rate of an open loop; it stays as it ends.
        seed: of the arrivals.
    """

    name: str
    requests: int
    users: int | None = None
    rate: tuple[Stretch, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.requests < 0:
            raise InputError(f"the number of requests must be >= 0, got {self.requests}")

    def arrivals(self) -> ClosedLoop | OpenLoop:
        """Of its requests."""
        if self.users is not None:
            return ClosedLoop(users=self.users)
        found = arrival_times(self._long_enough(), self.seed)
        return OpenLoop.of(found[: self.requests])

    def _long_enough(self) -> tuple[Stretch, ...]:
        """The course, with its last rate for so long that all requests come."""
        last = self.rate[-1].end
        missing = 2 * self.requests + 100 - sum(stretch.expected for stretch in self.rate)
        if missing <= 0:
            return self.rate
        return (*self.rate, Stretch(seconds=missing / last, start=last, end=last))


@dataclass(frozen=True, kw_only=True)
class SimulatedRow:
    """One policy under one load.

    Attributes:
        load, users: which.
        policy: which.
        figures: what happened.
        over_plain: tokens per second over those of plain decoding.
        oracle_share: gain over plain decoding as a share of the oracle's; None without an oracle that gains.
        course: how it went; None for a closed loop.
    """

    load: str
    users: int | None
    policy: str
    figures: Figures
    over_plain: float | None
    oracle_share: float | None
    course: Course | None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is simulated.

    Attributes:
        policies: as users write them; :data:`PLAIN` is added where it is missing.
        loads: at least one.
        target: latencies that attainment is measured against.

    Raises:
        InputError: an unknown policy, or one that is there twice.
    """

    policies: tuple[str, ...]
    loads: tuple[Load, ...]
    target: LatencyTarget = field(default_factory=LatencyTarget)

    def __post_init__(self) -> None:
        if len(set(self.policies)) < len(self.policies):
            raise InputError(f"a policy is named twice: {', '.join(self.policies)}")

    @property
    def arms(self) -> tuple[str, ...]:
        """All policies, plain decoding first."""
        return (PLAIN, *(policy for policy in self.policies if policy != PLAIN))

    @property
    def count(self) -> int:
        """Simulations to run."""
        return len(self.arms) * len(self.loads)

    def run(
        self, cluster: Cluster, draw: Callable[[int], Texts], progress: Callable[[int, str], None]
    ) -> tuple[SimulatedRow, ...]:
        """Run all of it.

        Args:
            cluster: the engines.
            draw: gives so many requests.
            progress: called after every simulation with how many are done and a note.

        Raises:
            InputError: an unknown policy.
        """
        has_confidence = draw(0).has_confidence
        for policy in self.arms:
            make_planner(policy, cluster.costs, block_size=1, num_slots=1, has_confidence=has_confidence)
        return tuple(self._rows(cluster, draw, progress))

    def _rows(
        self, cluster: Cluster, draw: Callable[[int], Texts], progress: Callable[[int, str], None]
    ) -> Iterator[SimulatedRow]:
        done = 0
        for load in self.loads:
            texts, arrivals = draw(load.requests), load.arrivals()
            found: dict[str, tuple[Figures, Course | None]] = {}
            for policy in self.arms:
                history = simulate(cluster, texts, arrivals, policy)
                window = whole(history) if load.users is None else steady(history, load.users)
                course = Course.of(history) if load.users is None else None
                found[policy] = Figures.of(history, window, self.target), course
                done += 1
                progress(done, f"{load.name} {policy}")
            yield from _compared(load, found)


def _compared(load: Load, found: dict[str, tuple[Figures, Course | None]]) -> Iterator[SimulatedRow]:
    speeds = {policy: figures.tokens_per_second for policy, (figures, _) in found.items()}
    plain, bound = speeds[PLAIN], speeds.get(ORACLE, 0.0)
    for policy, (figures, course) in found.items():
        gains = plain > 0 and bound >= LEAST_GAIN * plain and policy not in (PLAIN, ORACLE)
        yield SimulatedRow(
            load=load.name,
            users=load.users,
            policy=policy,
            figures=figures,
            over_plain=speeds[policy] / plain if plain else None,
            oracle_share=(speeds[policy] - plain) / (bound - plain) if gains else None,
            course=course,
        )


def closed_loads(users: Sequence[int], rounds: int) -> tuple[Load, ...]:
    """Closed loops in which each user asks so often.

    Raises:
        InputError: a number is out of range.
    """
    if rounds < 1 or not users or min(users) < 1:
        raise InputError(f"a closed loop needs users and at least one request of each, got {list(users)} and {rounds}")
    return tuple(
        Load(name=f"{count} user{'s' * (count > 1)}", users=count, requests=max(rounds * count, _LEAST_REQUESTS))
        for count in users
    )


_LEAST_REQUESTS = 64
"""Fewer requests than that say little about a policy."""


def frontier_gain(rows: Sequence[SimulatedRow], policy: str, base: str, user_speed: float) -> float | None:
    """Tokens per second over those of another policy, both at the load where a user gets a stated speed.

    Both are read off straight lines between the loads; None where a policy does not come to that speed.

    Args:
        rows: of closed loops.
        policy, base: which are compared.
        user_speed: tokens per second of a user.
    """
    one, other = (_at(rows, name, user_speed, invert=False) for name in (policy, base))
    return one / other if one and other else None


def matched_gain(rows: Sequence[SimulatedRow], policy: str, base: str, throughput: float) -> float | None:
    """Speed of a user over that under another policy, both at a load with a stated number of tokens per second."""
    one, other = (_at(rows, name, throughput, invert=True) for name in (policy, base))
    return one / other if one and other else None


def _at(rows: Sequence[SimulatedRow], policy: str, place: float, *, invert: bool) -> float | None:
    """Throughput where a user's speed is as stated, or the other way round."""
    points = [
        (row.figures.user_tokens_per_second, row.figures.tokens_per_second)
        for row in rows
        if row.policy == policy and row.figures.user_tokens_per_second is not None
    ]
    pairs = sorted((y, x) if invert else (x, y) for x, y in points)
    places, values = np.array(pairs, np.float64).reshape(-1, 2).T
    if not len(places) or not places[0] <= place <= places[-1]:
        return None
    return float(np.interp(place, places, values))
