"""How far a figure would move with other prompts of the same kind: the bootstrap over prompts.

Rounds of one answer resemble each other, so rounds are not resampled but whole prompts. Arms that answered the same
prompts share the resamples, which makes their ratio a paired comparison. Load tests resample their segments in the same
way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""Share of the resamples inside an interval."""

_Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure and its interval of level :data:`LEVEL`; no interval where only one prompt was there to resample."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Bootstrapped:
    """A figure, and what it is for every resample.

    Attributes:
        value: the figure.
        replicates: [B] its values over the resamples; None where there was only one prompt.
    """

    value: float
    replicates: _Array | None

    def estimate(self) -> Estimate:
        """The figure with its percentile interval."""
        if self.replicates is None:
            return Estimate(value=self.value)
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(self.replicates, [tail, 1 - tail])
        return Estimate(value=self.value, low=float(low), high=float(high))


def resamples(num_prompts: int, count: int, *seed: int) -> _Array | None:
    """How often each prompt appears in each resample, [count, num_prompts]; None for a single prompt.

    Args:
        num_prompts: at least one.
        count: number of resamples B.
        seed: numbers that decide about the draw; arms of a comparison take the same.
    """
    assert num_prompts > 0, "there is nothing to resample"
    if num_prompts == 1:
        return None
    rng = np.random.default_rng(seed)
    return rng.multinomial(num_prompts, np.full(num_prompts, 1 / num_prompts), size=count).astype(np.float64)


def tau_of(committed: Sequence[int], rounds: Sequence[int], draws: _Array | None) -> Bootstrapped:
    """Tokens per round over prompts: all tokens over all rounds; 1 where there are no rounds.

    Args:
        committed: tokens committed by the rounds of each prompt.
        rounds: number of its rounds.
        draws: from :func:`resamples`.
    """
    top, bottom = np.asarray(committed, np.float64), np.asarray(rounds, np.float64)
    value = float(_tau(top.sum(), bottom.sum()))
    return Bootstrapped(value=value, replicates=None if draws is None else _tau(draws @ top, draws @ bottom))


def rate_of(amounts: Sequence[float], seconds: Sequence[float], draws: _Array | None) -> Bootstrapped:
    """All amounts over all seconds, segment by segment resampled.

    Args:
        amounts: of each segment.
        seconds: of each segment, above 0 in all.
        draws: from :func:`resamples`.
    """
    top, bottom = np.asarray(amounts, np.float64), np.asarray(seconds, np.float64)
    return Bootstrapped(
        value=float(top.sum() / bottom.sum()), replicates=None if draws is None else (draws @ top) / (draws @ bottom)
    )


def mean_of(parts: Sequence[Bootstrapped]) -> Bootstrapped:
    """The unweighted mean of figures of different prompt sets, resampled independently of each other."""
    known = [part.replicates for part in parts if part.replicates is not None]
    return Bootstrapped(
        value=float(np.mean([part.value for part in parts])),
        replicates=np.mean(known, axis=0) if len(known) == len(parts) else None,
    )


def geometric_mean_of(parts: Sequence[Bootstrapped]) -> Bootstrapped:
    """The geometric mean of positive figures that were resampled independently of each other."""
    logs = [_mapped(part, np.log) for part in parts]
    return _mapped(mean_of(logs), np.exp)


def share_of_gain(part: Bootstrapped, bound: Bootstrapped) -> Bootstrapped:
    """How much of a bound's gain a figure has, both over the same base, whose own figure is 1."""
    over, under = part.replicates, bound.replicates
    known = None if over is None or under is None else (over - 1) / (under - 1)
    return Bootstrapped(value=(part.value - 1) / (bound.value - 1), replicates=known)


def _mapped(part: Bootstrapped, change: Callable[[Any], Any]) -> Bootstrapped:
    known = None if part.replicates is None else change(part.replicates)
    return Bootstrapped(value=float(change(part.value)), replicates=known)


def ratio_of(part: Bootstrapped, base: Bootstrapped) -> Bootstrapped:
    """One figure over another of the same resamples, resample by resample."""
    over, under = part.replicates, base.replicates
    known = None if over is None or under is None else over / under
    return Bootstrapped(value=part.value / base.value, replicates=known)


def _tau(committed: Any, rounds: Any) -> _Array:
    return np.where(rounds > 0, committed / np.maximum(rounds, 1), 1.0)
