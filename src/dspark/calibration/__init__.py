"""Confidences that can be trusted as probabilities: measuring how far they can, and correcting them. Numbers only."""

from dspark.calibration.artefact import (
    ARTEFACT_FILE,
    HEAD_KEY,
    OFFSETS_KEY,
    StsArtefact,
    check_artefact,
    head_fingerprint,
    parse_artefact,
    read_artefact,
    save_artefact,
)
from dspark.calibration.online import OnlineCalibration, OnlineOptions, PositionState
from dspark.calibration.reliability import (
    NUM_BINS,
    PositionReliability,
    ReliabilityBins,
    auroc,
    bin_of,
    brier,
    ece,
    expected_noise,
    mean_ece,
    reliability_bins,
    reliability_by_position,
)
from dspark.calibration.rounds import RecordedRound, Rounds
from dspark.calibration.sglang_temperatures import from_sglang_temperatures, is_bare, to_sglang_temperatures
from dspark.calibration.sts import GRID, MIN_ROUNDS, StsFit, check_enough, fit_sts
from dspark.calibration.temperature_scaling import Calibration

__all__ = [
    "ARTEFACT_FILE",
    "GRID",
    "HEAD_KEY",
    "MIN_ROUNDS",
    "NUM_BINS",
    "OFFSETS_KEY",
    "Calibration",
    "OnlineCalibration",
    "OnlineOptions",
    "PositionReliability",
    "PositionState",
    "RecordedRound",
    "ReliabilityBins",
    "Rounds",
    "StsArtefact",
    "StsFit",
    "auroc",
    "bin_of",
    "brier",
    "check_artefact",
    "check_enough",
    "ece",
    "expected_noise",
    "fit_sts",
    "from_sglang_temperatures",
    "head_fingerprint",
    "is_bare",
    "mean_ece",
    "parse_artefact",
    "read_artefact",
    "reliability_bins",
    "reliability_by_position",
    "save_artefact",
    "to_sglang_temperatures",
]
