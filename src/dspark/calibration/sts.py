"""Sequential Temperature Scaling: one temperature per position, fitted from left to right (method, section 5).

A temperature alone cannot correct a head that is wrong on average: where three drafts in ten are accepted and the head
says 0.6, no temperature gets below 0.5. The fit with offsets is our extension for that case. It goes from left to right
too, and pairs every temperature with the offset at which mean predicted and mean observed survival are the same. A
position that hardly any round reaches says next to nothing about its own offset, and takes over what its predecessor
has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark.calibration.reliability import ece
from dspark.calibration.rounds import Rounds
from dspark.calibration.temperature_scaling import Calibration, scale_confidence
from dspark.core import InputError

GRID: tuple[float, ...] = tuple(round(0.25 + 0.05 * step, 2) for step in range(76))
"""Temperatures that are tried: 0.25, 0.30, ... 4.00."""

MAX_OFFSET = 8.0
"""Offsets are sought between minus and plus this, in logits."""

MIN_REACHED = 50
"""Rounds that must have got to a position, all before it accepted, for an offset of its own."""

MIN_ROUNDS = 200
"""Fewest usable rounds at any position: with fewer, chance alone makes an ECE of several percent."""


@dataclass(frozen=True, kw_only=True)
class StsFit:
    """Fitted temperatures and how they were found.

    Attributes:
        calibration: the temperatures.
        ece_curve: [G, len(grid)] ECE of survival at position k for every temperature tried there, with those of the
            earlier positions fixed.
        counts: [G] rounds that were used at each position.
    """

    calibration: Calibration
    ece_curve: NDArray[np.float64]
    counts: tuple[int, ...]


def fit_sts(
    rounds: Rounds, *, grid: tuple[float, ...] = GRID, min_rounds: int = MIN_ROUNDS, offsets: bool = False
) -> StsFit:
    """Fit the temperatures.

    Position after position the one is taken that minimises the ECE of the running product of calibrated confidences
    (20 bins), the smallest on ties. Position k uses the rounds whose prefix label is known there
    (:mod:`dspark.calibration.rounds`), so the rounds of different positions may differ.

    Args:
        rounds: recorded rounds.
        grid: temperatures to try, rising.
        min_rounds: fewest usable rounds at a position.
        offsets: fit an offset beside every temperature.

    Raises:
        InputError: there are fewer.
    """
    counts = check_enough(rounds, min_rounds, "to calibrate")
    survival = np.ones(len(rounds))
    curve = np.empty((rounds.block_size, len(grid)))
    best, tried = 0, [0.0] * len(grid)
    chosen: list[tuple[float, float]] = []
    for k in range(rounds.block_size):
        usable, confidence = rounds.known[:, k], rounds.confidence[:, k]
        before, own, label = survival[usable], confidence[usable], rounds.labels[usable, k]
        follows = offsets and k > 0 and rounds.reached[:, k].sum() < MIN_REACHED
        if offsets and not follows:
            tried = [_matching_offset(before, own, label, t) for t in grid]
        curve[k] = [ece(before * scale_confidence(own, t, b), label) for t, b in zip(grid, tried, strict=True)]
        best = best if follows else int(np.argmin(curve[k]))
        chosen.append((grid[best], tried[best]))
        survival = survival * scale_confidence(confidence, *chosen[k])
    temperatures, shifts = zip(*chosen, strict=True)
    found = Calibration(temperatures=temperatures, offsets=shifts if offsets else None)
    return StsFit(calibration=found, ece_curve=curve, counts=counts)


def _matching_offset(
    before: NDArray[np.float64], own: NDArray[np.float64], label: NDArray[np.bool_], temperature: float
) -> float:
    """The offset at which mean survival is as predicted, by bisection; to three digits."""
    low, high = -MAX_OFFSET, MAX_OFFSET
    observed = label.mean()
    while high - low > 1e-3:
        middle = (low + high) / 2
        if (before * scale_confidence(own, temperature, middle)).mean() < observed:
            low = middle
        else:
            high = middle
    return round((low + high) / 2, 3)


def check_enough(rounds: Rounds, least: int, purpose: str) -> tuple[int, ...]:
    """Count the rounds that can be used at every position.

    Args:
        rounds: recorded rounds.
        least: fewest at any position.
        purpose: what they are needed for, for the message.

    Returns:
        [G] counts.

    Raises:
        InputError: a position has fewer.
    """
    counts = tuple(rounds.known.sum(axis=0).tolist())
    poorest = int(np.argmin(counts))
    if counts[poorest] < least:
        raise InputError(
            f"too few rounds {purpose}: of {len(rounds)}, {counts[poorest]} have a known outcome at position "
            f"{poorest + 1} of {len(counts)}, at least {least} are needed; use more prompts, longer answers, or more "
            "samples per prompt"
        )
    return counts
