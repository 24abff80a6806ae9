"""Calibration that goes on while the drafter serves: a correction per position, learnt from what was verified.

Every verified position with all before it accepted is a trial of its conditional confidence (see
:mod:`dspark.calibration.rounds`: positions that were not verified are censored and say nothing, whatever became of the
block). At each position the logit z of the confidence becomes ``s * z + b``; logistic regression with a decaying memory
moves (s, b) after every step, from left to right like Sequential Temperature Scaling: position k is corrected on the
rounds that reach it. Where all positions are right conditionally, so are the survivals, their products.

Bounded: s and b stay within limits, and both are drawn back to "no correction" by a prior worth some trials, so that a
position nobody reaches any more loses its correction to the prior only as new trials come in. The correction reads
earlier steps only and each entry by itself, so a policy that was lossless stays it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark.calibration.temperature_scaling import Calibration, scale_confidence
from dspark.core import InputError

_MAX_LOGIT = 8.0


@dataclass(frozen=True, kw_only=True)
class OnlineOptions:
    """How fast and how far the correction goes.

    Attributes:
        memory: trials of a position after which what was learnt has faded to about a third.
        prior_offset: how far offsets are expected from 0, in logits.
        prior_scale: how far scales are expected from 1.
        max_offset: bound of the offset, either way.
        max_scale: bound of the scale, either way, as a factor.

    Raises:
        InputError: a number is out of range.
    """

    memory: float = 2000.0
    prior_offset: float = 0.5
    prior_scale: float = 0.2
    max_offset: float = 2.0
    max_scale: float = 2.0

    def __post_init__(self) -> None:
        if self.memory <= 1 or self.max_scale < 1 or min(self.prior_offset, self.prior_scale, self.max_offset) <= 0:
            raise InputError("memory must be above 1, max_scale at least 1, and the other numbers above 0")


@dataclass(frozen=True, kw_only=True)
class PositionState:
    """What online calibration does at one position, for metrics.

    Attributes:
        position: counted from 0.
        trials: seen so far.
        scale, offset: applied to the logit.
        stated: mean confidence of recent trials before correction.
        corrected: after it.
        observed: share of them that was accepted.
    """

    position: int
    trials: int
    scale: float
    offset: float
    stated: float
    corrected: float
    observed: float


class OnlineCalibration:
    """Corrections of G positions.

    Args:
        block_size: G.
        options: how fast and how far.
        enabled: False observes nothing and corrects nothing.
    """

    def __init__(self, block_size: int, options: OnlineOptions | None = None, *, enabled: bool = True) -> None:
        self.options, self.enabled, self._block_size = options or OnlineOptions(), enabled, block_size
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        spread = np.array((self.options.prior_scale, self.options.prior_offset))
        self._prior = np.diag(1 / spread**2)
        self._precision = np.tile(self._prior, (self._block_size, 1, 1))  # [G, 2, 2]
        self._shift = np.zeros((self._block_size, 2))  # [G, 2] scale - 1 and offset
        self._trials = np.zeros(self._block_size, np.int64)
        self._sums = np.zeros((4, self._block_size))  # faded weight, stated, corrected, observed

    def observe(
        self, confidence: NDArray[np.float64], verified: NDArray[np.int64], accepted: NDArray[np.int64]
    ) -> None:
        """Learn from the rounds of one step.

        Args:
            confidence: [R, g] before this correction, g <= G; entries past what was verified are not read.
            verified: [R] drafts that were looked at.
            accepted: [R] drafts that were kept.
        """
        width = min(confidence.shape[1], self._block_size)
        places = np.arange(width)
        tried = (places < verified[:, None]) & (places <= accepted[:, None])
        if not self.enabled or not tried.any():
            return
        stated = np.where(tried, np.nan_to_num(confidence[:, :width], nan=0.0), 0.5)
        logits, label = _logits(stated), places < accepted[:, None]
        self._fade(tried.sum(axis=0))
        corrected = self._learn(logits, label & tried, tried)
        self._sums[:, :width] += np.stack([(tried * part).sum(axis=0) for part in (1.0, stated, corrected, label)])

    @property
    def calibration(self) -> Calibration | None:
        """What to apply on top of the fitted calibration; None while there is nothing to correct."""
        if not self.enabled or not self._trials.any():
            return None
        scale, offset = self._bounded().T
        return Calibration(temperatures=tuple((1 / scale).tolist()), offsets=tuple(offset.tolist()))

    def apply(self, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Corrected confidences [R, g]; the same array while there is nothing to correct."""
        if not self.enabled or not self._trials.any():
            return confidence
        scale, offset = self._bounded()[: confidence.shape[1]].T
        return scale_confidence(confidence, 1 / scale, offset)

    def state(self) -> tuple[PositionState, ...]:
        """All positions, for metrics."""
        bounded, weight = self._bounded(), np.maximum(self._sums[0], 1e-9)
        means = self._sums[1:] / weight
        return tuple(
            PositionState(
                position=k,
                trials=int(self._trials[k]),
                scale=float(bounded[k, 0]),
                offset=float(bounded[k, 1]),
                stated=float(means[0, k]),
                corrected=float(means[1, k]),
                observed=float(means[2, k]),
            )
            for k in range(self._block_size)
        )

    def _bounded(self) -> NDArray[np.float64]:
        """[G, 2] scale and offset."""
        limit = self.options.max_scale
        scale = np.clip(1 + self._shift[:, 0], 1 / limit, limit)
        return np.stack((scale, np.clip(self._shift[:, 1], -self.options.max_offset, self.options.max_offset)), axis=1)

    def _fade(self, trials: NDArray[np.int64]) -> None:
        """Let what was known before so many new trials fade towards the prior."""
        width = len(trials)
        keep = np.exp(trials * math.log1p(-1 / self.options.memory))
        old = keep[:, None, None] * self._precision[:width]
        self._precision[:width] = old + (1 - keep)[:, None, None] * self._prior
        weighted = np.einsum("gij,gj->gi", old, self._shift[:width])
        self._shift[:width] = np.linalg.solve(self._precision[:width], weighted[..., None])[..., 0]
        self._sums[:, :width] *= keep
        self._trials[:width] += trials

    def _learn(
        self, logits: NDArray[np.float64], label: NDArray[np.bool_], tried: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """One Newton step on the trials; returns what the correction said before it."""
        width = logits.shape[1]
        scale, offset = self._bounded()[:width].T
        corrected: NDArray[np.float64] = 1 / (1 + np.exp(-(scale * logits + offset)))
        inputs = np.stack((logits, np.ones_like(logits)))  # [2, R, G]
        weight = tried * corrected * (1 - corrected)
        self._precision[:width] += np.einsum("irg,jrg,rg->gij", inputs, inputs, weight)
        slope = np.einsum("irg,rg->gi", inputs, tried * (label - corrected))
        self._shift[:width] += np.linalg.solve(self._precision[:width], slope[..., None])[..., 0]
        self._shift = self._bounded() - (1.0, 0.0)
        return corrected


def _logits(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    edge = 1 / (1 + math.exp(_MAX_LOGIT))
    inside = np.clip(confidence, edge, 1 - edge)
    odds: NDArray[np.float64] = np.log(inside) - np.log1p(-inside)
    return odds
