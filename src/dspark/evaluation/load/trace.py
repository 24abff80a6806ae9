"""What happened in one segment of a load test."""

from __future__ import annotations

from dataclasses import dataclass, field

from dspark.engine import StepStats
from dspark.evaluation.load.traffic import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Tokens that reached a user at one moment.

    Attributes:
        at: the moment.
        token_ids: at least one.
        drafted: how many of them the drafter wrote.
    """

    at: float
    token_ids: tuple[int, ...]
    drafted: int


@dataclass(slots=True, kw_only=True)
class RequestTrace:
    """One request.

    Attributes:
        job: what was asked.
        arrived: when; where arrivals have times, it is that time, whenever it was handed in.
        outputs: what came, in order.
        ended: when its answer was whole; None if it was cut off.
    """

    job: Job
    arrived: float
    outputs: list[Output] = field(default_factory=list)
    ended: float | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The answer as far as it came."""
        return tuple(token for output in self.outputs for token in output.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """One step of the engine, and when it was over."""

    at: float
    stats: StepStats


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A segment.

    Attributes:
        requests: all of them, in order of arrival.
        steps: all of them.
        start, end: the time that figures are about; what was before filled the engine.
        users: how many requests there were at any time; None where they arrived as they liked.
    """

    requests: tuple[RequestTrace, ...]
    steps: tuple[StepTrace, ...]
    start: float
    end: float
    users: int | None
