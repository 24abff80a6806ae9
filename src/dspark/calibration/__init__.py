"""Confidences that can be trusted as probabilities: measuring how far they can, and correcting them. Numbers only."""

from dspark.calibration.reliability import (
    NUM_BINS,
    PositionReliability,
    ReliabilityBins,
    auroc,
    brier,
    ece,
    expected_noise,
    mean_ece,
    reliability_bins,
    reliability_by_position,
)
from dspark.calibration.rounds import Rounds

__all__ = [
    "NUM_BINS",
    "PositionReliability",
    "ReliabilityBins",
    "Rounds",
    "auroc",
    "brier",
    "ece",
    "expected_noise",
    "mean_ece",
    "reliability_bins",
    "reliability_by_position",
]
