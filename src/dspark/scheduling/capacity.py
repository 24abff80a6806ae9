"""How much to verify, searched over past steps: the whole curve, cliffs and all.

Nothing here ever receives a confidence of the step it decides about. Arguments of type :data:`PastSurvivals` are made
by :class:`~dspark.scheduling.survival_history.SurvivalHistory` of finished steps, so that any search is allowed, a
retrospective one too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

import numpy as np
from numpy.typing import NDArray

from dspark.scheduling.step_view import Floats

PastSurvivals = NewType("PastSurvivals", NDArray[np.float64])
"""[M, R, G] survivals of M finished rounds of each request; 0 where nothing will be drafted in the step to come."""

_FLOORS = 24
_BETTER = 1.005


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What may be verified in a step, decided before it.

    Attributes:
        count: most drafts over all requests.
        floor: survival below which none is.
        throughput: expected tokens per second.
    """

    count: int
    floor: float = 0.0
    throughput: float


def search_capacity(past: PastSurvivals, seconds: Floats, *, tokens: float, floors: bool = True) -> Capacity:
    """Maximise expected tokens per second over all capacities, as if the past rounds came again.

    A fixed count is searched at every value (method, section 6, asynchronous). With several past rounds a floor on
    survival is searched too, which verifies more in a round that promises more; it must be better by half a percent to
    be taken. With one round it cannot be better than the count it amounts to.

    Args:
        past: what requests promised.
        seconds: [n + 1] of the whole step with 0, 1, .. n drafts verified, drafting included.
        tokens: expected without any draft: one for every request.
        floors: search floors as well.
    """
    rounds = len(past)
    falling = np.sort(past.reshape(rounds, -1), axis=1)[:, ::-1][:, : len(seconds) - 1]
    gains = np.zeros((rounds, falling.shape[1] + 1))
    np.cumsum(falling, axis=1, out=gains[:, 1:])
    throughput = (tokens + gains.mean(axis=0)) / seconds[: gains.shape[1]]
    best = int(np.argmax(throughput))
    found = Capacity(count=best, throughput=float(throughput[best]))
    return _floor(falling, gains, seconds, tokens, found) if floors and rounds > 1 else found


def _floor(falling: Floats, gains: Floats, seconds: Floats, tokens: float, found: Capacity) -> Capacity:
    """The best floor, if it is better than the count that was found."""
    some = falling[falling > 0]
    if not some.size:
        return found
    floors = np.quantile(some, np.linspace(0, 1, _FLOORS))
    counts = (falling[:, None, :] >= floors[:, None]).sum(axis=2)  # [M, floors]
    gained = np.take_along_axis(gains, counts, axis=1).mean(axis=0)
    throughput = (tokens + gained) / seconds[counts].mean(axis=0)
    best = int(np.argmax(throughput))
    if throughput[best] <= _BETTER * found.throughput:
        return found
    return Capacity(count=len(seconds) - 1, floor=float(floors[best]), throughput=float(throughput[best]))
