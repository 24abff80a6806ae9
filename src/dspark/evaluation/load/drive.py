"""The load generator: requests go in by a closed or an open loop, and everything that comes out is written down.

It knows an engine as a :class:`Server` and time as a clock, so both can be made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from dspark.core import SamplingParams, TokenOrigin
from dspark.engine import StepOutput, StepStats
from dspark.evaluation.load.clock import Clock
from dspark.evaluation.load.trace import Output, RequestTrace, StepTrace, Trace
from dspark.evaluation.load.traffic import Job, staggered
from dspark.evaluation.runs import greedy


class Server(Protocol):
    """What answers; :class:`~dspark.engine.EngineCore` is one."""

    @property
    def last_step(self) -> StepStats:
        """Rows and times of the last step."""
        ...

    def add_request(
        self, prompt_token_ids: Iterable[int], params: SamplingParams | None = None, *, request_id: str | None = None
    ) -> str:
        """Queue a request."""
        ...

    def step(self) -> list[StepOutput]:
        """One tick."""
        ...

    def abort(self, request_id: str) -> Any:
        """End a request; one that has ended is no error."""
        ...


@dataclass(frozen=True, kw_only=True)
class Window:
    """How long a closed loop is watched: until either is reached.

    Attributes:
        tokens: written.
        seconds: passed.
    """

    tokens: int | None = None
    seconds: float | None = None

    def is_over(self, tokens: int, seconds: float) -> bool:
        """Whether it is."""
        return (self.tokens is not None and tokens >= self.tokens) or (
            self.seconds is not None and seconds >= self.seconds
        )


def drive_closed(server: Server, jobs: Iterator[Job], users: int, window: Window, clock: Clock) -> Trace:
    """So many users, each of whom asks again as soon as the answer is there.

    Watching begins when each of the first requests has its first token, so that filling the engine is left out. These
    first answers are cut to different lengths, or all would end in the same steps.

    Args:
        server: nothing is in progress; nothing is afterwards, come what may.
        jobs: without end.
        users: requests in progress at any time.
        window: how long, at least one step.
        clock: time.
    """
    with _Floor(server, clock) as floor:
        queue = staggered(jobs, users)
        for job in islice(queue, users):
            floor.hand_in(job, clock.now())
        first = list(floor.requests)
        while not all(request.outputs for request in first):
            floor.step()
            floor.refill(queue, users)
        start, before = clock.now(), floor.tokens
        while True:
            floor.step()
            now = clock.now()
            if window.is_over(floor.tokens - before, now - start):
                return floor.trace(start, now, users)
            floor.refill(queue, users)


def drive_open(server: Server, jobs: Iterator[Job], times: Sequence[float], clock: Clock) -> Trace:
    """Requests come when they come, and all are answered.

    Args:
        server: nothing is in progress; nothing is afterwards, come what may.
        jobs: at least as many as there are times.
        times: seconds from now at which a request arrives, rising, at least one.
        clock: time; it is idle where nothing is in progress.
    """
    with _Floor(server, clock) as floor:
        start, coming = clock.now(), list(reversed(times))
        while coming or floor.unfinished:
            if coming and not floor.unfinished:
                clock.skip_to(start + coming[-1])
            while coming and start + coming[-1] <= clock.now():
                floor.hand_in(next(jobs), start + coming.pop())
            if floor.unfinished:
                floor.step()
        return floor.trace(start, clock.now(), None)


class _Floor:
    """The requests of a segment; those that are unfinished when it is left are aborted."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self._server, self._now = server, clock.now
        self._by_name: dict[str, RequestTrace] = {}
        self.unfinished: dict[str, RequestTrace] = {}
        self.steps: list[StepTrace] = []
        self.tokens = 0

    @property
    def requests(self) -> list[RequestTrace]:
        """All so far."""
        return list(self._by_name.values())

    def __enter__(self) -> _Floor:
        return self

    def __exit__(self, *error: object) -> None:
        for name in self._by_name:
            self._server.abort(name)

    def hand_in(self, job: Job, arrived: float) -> None:
        """A request arrives."""
        name = f"load-{len(self._by_name)}"
        self._by_name[name] = self.unfinished[name] = RequestTrace(job=job, arrived=arrived)
        self._server.add_request(job.prompt, greedy(job.max_tokens), request_id=name)

    def refill(self, jobs: Iterator[Job], users: int) -> None:
        """Users whose answer is there ask again."""
        while len(self.unfinished) < users:
            self.hand_in(next(jobs), self._now())

    def step(self) -> None:
        """One tick."""
        outputs = self._server.step()
        now = self._now()
        self.steps.append(StepTrace(at=now, stats=self._server.last_step))
        for output in outputs:
            self._take(output, now)

    def _take(self, output: StepOutput, now: float) -> None:
        request = self.unfinished[output.request_id]
        if output.token_ids:
            drafted = output.origins.count(TokenOrigin.DRAFT)
            request.outputs.append(Output(at=now, token_ids=output.token_ids, drafted=drafted))
            self.tokens += len(output.token_ids)
        if output.completion is not None:
            request.ended = now
            del self.unfinished[output.request_id]

    def trace(self, start: float, end: float, users: int | None) -> Trace:
        """All that happened."""
        return Trace(requests=tuple(self.requests), steps=tuple(self.steps), start=start, end=end, users=users)


MakeClock = Callable[[], Clock]
"""Makes the clock of a segment."""
