"""When requests arrive: a Poisson process whose rate may rise, fall or jump."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark.core import InputError


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A stretch of time in which the rate goes from one value to another along a straight line.

    Attributes:
        seconds: how long.
        start, end: requests per second at its ends.
    """

    seconds: float
    start: float
    end: float

    @property
    def expected(self) -> float:
        """Mean number of arrivals."""
        return self.seconds * (self.start + self.end) / 2

    def when(self, share: float) -> float:
        """Seconds after which ``share`` arrivals are to be expected, 0 .. ``expected``."""
        slope = (self.end - self.start) / self.seconds
        root = math.sqrt(max(self.start * self.start + 2 * slope * share, 0.0))
        return min(2 * share / (self.start + root), self.seconds) if share else 0.0


SHAPES = ("poisson", "ramp", "burst")
"""Arrivals that have names; see :func:`shape`."""

_STEADY, _LOW, _HIGH, _QUIET, _BURST, _BURST_SHARE = 0.7, 0.2, 1.6, 0.4, 3.0, 0.15


def shape(name: str, capacity: float, seconds: float) -> tuple[Stretch, ...]:
    """A named course of the rate.

    ``poisson``: a steady 0.7 of the capacity. ``ramp``: from 0.2 up to 1.6 and down again. ``burst``: 0.4, but for a
    burst of 3.0 in the middle that lasts 15 % of the time.

    Args:
        name: one of :data:`SHAPES`.
        capacity: requests per second that plain decoding can just serve.
        seconds: until the last arrival.

    Raises:
        InputError: there is no such course.
    """
    match name:
        case "poisson":
            parts = [(1.0, _STEADY, _STEADY)]
        case "ramp":
            parts = [(0.5, _LOW, _HIGH), (0.5, _HIGH, _LOW)]
        case "burst":
            calm = (1 - _BURST_SHARE) / 2
            parts = [(calm, _QUIET, _QUIET), (_BURST_SHARE, _BURST, _BURST), (calm, _QUIET, _QUIET)]
        case _:
            raise InputError(f"arrivals must be among {', '.join(SHAPES)}, got {name!r}")
    return tuple(
        Stretch(seconds=share * seconds, start=start * capacity, end=end * capacity) for share, start, end in parts
    )


def arrival_times(stretches: Sequence[Stretch], *seed: int) -> tuple[float, ...]:
    """Draw the arrivals of a Poisson process, rising.

    Arrivals at rate 1 are drawn on the axis of expected counts and carried over to the axis of time.

    Args:
        stretches: the rate, stretch by stretch.
        seed: numbers that decide about the draw; arms of a comparison take the same.
    """
    rng, times, start, passed = np.random.default_rng(seed), [], 0.0, 0.0
    place = rng.exponential()
    for stretch in stretches:
        while place < passed + stretch.expected:
            times.append(start + stretch.when(place - passed))
            place += rng.exponential()
        start, passed = start + stretch.seconds, passed + stretch.expected
    return tuple(times)
