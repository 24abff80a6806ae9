"""The clock: arrivals and ends of steps in their order, over many replicas."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dspark.core import InputError
from dspark.evaluation.load.figures import ORACLE
from dspark.scheduling import CostModel
from dspark.simulation.arrivals import Arrivals, ClosedLoop, OpenLoop
from dspark.simulation.history import History, Recorder
from dspark.simulation.planners import make_planner
from dspark.simulation.replica import Replica, ReplicaOptions
from dspark.simulation.texts import Texts


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Engines behind one router, which sends each request to the one with the fewest unfinished requests.

    Attributes:
        costs: what steps take.
        believed: what the policies were told that steps take; None for the truth. They correct it by what they see.
        replicas: number of engines.
        options: sizes of each.

    Raises:
        InputError: there are no engines.
    """

    costs: CostModel
    believed: CostModel | None = None
    replicas: int = 1
    options: ReplicaOptions = field(default_factory=ReplicaOptions)

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise InputError(f"replicas must be an integer >= 1, got {self.replicas}")


def simulate(cluster: Cluster, texts: Texts, arrivals: Arrivals, policy: str) -> History:
    """Answer all texts, in their order of arrival; the same arguments give the same history.

    Args:
        cluster: the engines.
        texts: M requests.
        arrivals: when they come; an open loop has M times.
        policy: as users write it, or ``oracle``.

    Raises:
        InputError: an unknown policy, or another number of times than of texts.
    """
    if isinstance(arrivals, OpenLoop) and len(arrivals.times) != len(texts.lengths):
        raise InputError(f"there are {len(arrivals.times)} arrival times for {len(texts.lengths)} requests")
    return _Clock(cluster, texts, arrivals, policy).run()


class _Clock:
    """A simulation at work."""

    def __init__(self, cluster: Cluster, texts: Texts, arrivals: Arrivals, policy: str) -> None:
        lengths, options = texts.lengths, cluster.options
        self._recorder = Recorder(lengths.answer)
        slots, believed = options.max_requests, cluster.believed or cluster.costs
        planned = cluster.costs if policy == ORACLE else believed
        self._replicas = [
            Replica(
                number,
                make_planner(
                    policy,
                    planned,
                    block_size=texts.block_size,
                    num_slots=slots,
                    has_confidence=texts.has_confidence,
                ),
                cluster.costs,
                texts,
                options,
                self._recorder,
            )
            for number in range(cluster.replicas)
        ]
        self._load = np.zeros(cluster.replicas, np.int64)
        self._at = np.zeros(len(lengths), np.int64)  # replica of each request
        self._events: list[tuple[float, int]] = []  # end of a step, and whose
        self._is_closed, self._next = isinstance(arrivals, ClosedLoop), 0
        self._times = [0.0] * min(arrivals.users, len(lengths)) if isinstance(arrivals, ClosedLoop) else arrivals.times
        self._total = len(lengths)

    def run(self) -> History:
        """Until everything is answered."""
        while True:
            arrival = self._times[self._next] if self._next < len(self._times) else np.inf
            end = self._events[0][0] if self._events else np.inf
            now = float(min(arrival, end))
            if now == np.inf:
                return self._recorder.history()
            touched = self._finish(now) if end == now else set()
            touched |= self._arrive(now)
            self._begin(touched, now)

    def _arrive(self, now: float) -> set[int]:
        """All requests that come now."""
        touched = set()
        while self._next < len(self._times) and self._times[self._next] <= now:
            touched.add(self._route(self._next, now))
            self._next += 1
        return touched

    def _finish(self, now: float) -> set[int]:
        """All steps that end now; in a closed loop, whoever has got an answer asks the next question."""
        touched = set()
        while self._events and self._events[0][0] <= now:
            _, number = heapq.heappop(self._events)
            touched.add(number)
            ended = self._replicas[number].finish(now)
            np.subtract.at(self._load, self._at[ended], 1)
            if self._is_closed:
                touched |= self._ask(len(ended), now)
        return touched

    def _ask(self, count: int, now: float) -> set[int]:
        touched = set()
        for _ in range(min(count, self._total - self._next)):
            touched.add(self._route(self._next, now))
            self._next += 1
        return touched

    def _route(self, text: int, now: float) -> int:
        number = int(np.argmin(self._load))
        self._load[number] += 1
        self._at[text] = number
        self._recorder.arrived[text] = now
        self._replicas[number].add(text)
        return number

    def _begin(self, numbers: Iterable[int], now: float) -> None:
        """Let idle ones among these begin their next step."""
        for number in sorted(numbers):
            replica = self._replicas[number]
            seconds = None if replica.busy else replica.begin()
            if seconds is not None:
                heapq.heappush(self._events, (now + seconds, number))
