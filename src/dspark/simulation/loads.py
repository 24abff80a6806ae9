"""Loads as users write them."""

from __future__ import annotations

from dspark.core import InputError
from dspark.evaluation.load.arrivals import Stretch
from dspark.simulation.spelling import number
from dspark.simulation.sweep import Load

OPEN_FORMS = "poisson:RATE, ramp:FROM:TO:SECONDS or burst:BASE:PEAK:SECONDS"
"""What :func:`open_load` reads."""

_BURST_SHARE = 0.15


def open_load(text: str, requests: int, seed: int) -> Load:
    """An open loop. Rates are requests per second.

    ``poisson`` keeps its rate. ``ramp`` goes from one rate to another and back in the seconds stated. ``burst`` keeps
    the base rate but for a peak that lasts 15 % of the seconds stated, in the middle of them, and comes once.

    Args:
        text: one of :data:`OPEN_FORMS`.
        requests: how many come, at the last rate once the course is over.
        seed: of the arrivals.

    Raises:
        InputError: it has another form, or a number is out of range.
    """
    name, *values = (part.strip() for part in text.split(":"))
    numbers = [number(f"a number of the arrivals {text!r}", value, float) for value in values]
    if not all(0 < value < float("inf") for value in numbers):
        raise InputError(f"rates and seconds of arrivals must be above 0, got {text!r}")
    match name, numbers:
        case "poisson", [rate]:
            parts = [(1.0, rate, rate)]
        case "ramp", [low, high, seconds]:
            parts = [(seconds / 2, low, high), (seconds / 2, high, low)]
        case "burst", [low, high, seconds]:
            calm = seconds * (1 - _BURST_SHARE) / 2
            parts = [(calm, low, low), (_BURST_SHARE * seconds, high, high), (calm, low, low)]
        case _:
            raise InputError(f"arrivals must be {OPEN_FORMS}, got {text!r}")
    stretches = tuple(Stretch(seconds=length, start=start, end=end) for length, start, end in parts)
    return Load(name=text, requests=requests, rate=stretches, seed=seed)
