"""Rounds with known truth: confidences, the outcome of every position, and how far a policy would have looked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark.calibration import Rounds

TRUE_TEMPERATURES = (1.6, 1.3, 2.0, 0.8, 1.2)


@dataclass(frozen=True)
class Simulation:
    """``confidence`` [N, G] as a drafter states it; ``accepted`` [N] had all been verified."""

    confidence: np.ndarray
    accepted: np.ndarray

    def seen(self, horizon: np.ndarray) -> Rounds:
        """What is recorded when round n is verified up to ``horizon[n]``."""
        return Rounds(confidence=self.confidence, horizon=horizon, accepted=np.minimum(self.accepted, horizon))

    def whole(self) -> Rounds:
        """Everything verified."""
        n, g = self.confidence.shape
        return self.seen(np.full(n, g))


def simulate(count: int, seed: int = 0, temperatures: tuple[float, ...] = TRUE_TEMPERATURES) -> Simulation:
    """Confidences whose logits are too large by the given temperatures; outcomes follow the right probabilities."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(0.6, 0.8, (count, 1))  # some rounds are easy, some hard
    logits = ease + rng.normal(0.4, 0.9, (count, len(temperatures)))
    right = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    confidence = 1 / (1 + np.exp(-logits * np.array(temperatures)))
    return Simulation(confidence=confidence, accepted=np.logical_and.accumulate(right, axis=1).sum(axis=1))


def threshold(confidence: np.ndarray, least: float) -> np.ndarray:
    """Verify lengths of a policy that looks at earlier and present confidences only: stop at the first low one."""
    return np.logical_and.accumulate(confidence >= least, axis=1).sum(axis=1)
