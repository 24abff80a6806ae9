"""What a load test measures, and how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dspark.core import InputError
from dspark.evaluation.load.arrivals import SHAPES
from dspark.evaluation.load.latency import LatencyTarget
from dspark.evaluation.load.traffic import LEAST_TOKENS, Traffic

CLOSED = "closed"
"""Arrivals of a closed loop."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A load.

    Attributes:
        traffic: what is asked.
        arrivals: :data:`CLOSED`, or one of :data:`~dspark.evaluation.load.arrivals.SHAPES`.
        users: answers in progress, always (closed) or at most.
    """

    traffic: str
    arrivals: str
    users: int

    @property
    def is_closed(self) -> bool:
        """Whether it is a closed loop."""
        return self.arrivals == CLOSED

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.traffic} x{self.users}" if self.is_closed else f"{self.traffic} {self.arrivals}"


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """Sizes of a load test.

    Attributes:
        concurrency: users of the closed loops, rising; the largest is the limit of the open ones.
        arrivals: shapes of the open loops; may be none.
        mixed, each: prompts of all domains mixed, and of each domain by itself.
        max_tokens: length limit of every answer.
        seconds: for each closed loop and arm, over all repeats, at the speed of plain decoding.
        repeats: into how many segments that is cut; figures are resampled over them.
        open_seconds: during which requests arrive in each segment of an open loop.
        goal: latencies that attainment is measured against.
        seed: of orders and arrivals.
        resamples: how often repeats are resampled for the intervals.

    Raises:
        InputError: a number is out of range.
    """

    concurrency: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    arrivals: tuple[str, ...] = ("ramp",)
    mixed: bool = True
    each: bool = False
    max_tokens: int = 64
    seconds: float = 6.0
    repeats: int = 3
    open_seconds: float = 10.0
    goal: LatencyTarget = field(default_factory=LatencyTarget)
    seed: int = 0
    resamples: int = 2000

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", LEAST_TOKENS), ("repeats", 1), ("resamples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be >= {least}, got {getattr(self, name)}")
        widths = list(self.concurrency)
        if not widths or widths[0] < 1 or widths != sorted(set(widths)):
            raise InputError(f"concurrency must be rising numbers >= 1, got {', '.join(map(str, widths)) or 'nothing'}")
        if not (self.mixed or self.each):
            raise InputError("there is no traffic: give prompts of all files mixed, of each by itself, or both")
        unknown = [name for name in self.arrivals if name not in SHAPES]
        if unknown:
            raise InputError(f"arrivals must be among {', '.join(SHAPES)}, got {unknown[0]!r}")
        for name, value in (
            ("seconds per point", self.seconds),
            ("seconds of arrivals", self.open_seconds),
        ):
            if not value > 0:
                raise InputError(f"{name} must be above 0, got {value}")

    @property
    def segment_seconds(self) -> float:
        """Length of a segment."""
        return self.seconds / self.repeats

    def points(self, traffics: Sequence[Traffic]) -> tuple[Point, ...]:
        """All loads: the closed loops of every traffic, then the open loops of the first."""
        closed = [
            Point(traffic=traffic.name, arrivals=CLOSED, users=users)
            for traffic in traffics
            for users in self.concurrency
        ]
        most = self.concurrency[-1]
        open_loops = [Point(traffic=traffics[0].name, arrivals=name, users=most) for name in self.arrivals]
        return (*closed, *open_loops)
