"""What is said about confidences of recorded rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dspark.calibration import Calibration
from dspark.evaluation import confidence_quality

from .rounds import STOP, made


def test_exact_numbers() -> None:
    """Position 1: 0.75 twice, once accepted. Position 2, reached once: 0.5, rejected."""
    traces = [made(1, 2, confidence=(0.75, 0.5)), made(0, 2, confidence=(0.75, 0.5))]
    found = confidence_quality(traces, 2, (), None)
    assert found is not None
    assert (found.rounds, found.calibrated) == (2, None)
    slots = found.raw.conditional
    assert [position.count for position in slots.positions] == [2, 1]
    assert [position.ece for position in slots.positions] == pytest.approx([0.25, 0.5])
    assert (slots.mean_ece, slots.worst_ece) == pytest.approx((0.375, 0.5))
    assert slots.overall.brier == pytest.approx((0.25**2 + 0.75**2 + 0.5**2) / 3)
    assert slots.overall.ece == pytest.approx((0.5 + 0.5) / 3)
    assert slots.overall.auroc == pytest.approx(0.75)  # one tie, one in order
    prefixes = found.raw.survival
    assert [position.count for position in prefixes.positions] == [2, 2]
    assert prefixes.positions[1].predicted == pytest.approx(0.375)
    assert prefixes.positions[1].observed == 0.0
    assert math.isnan(prefixes.positions[1].auroc)
    assert sum(slots.bins.count) == 3


def test_cut_blocks_are_no_failures() -> None:
    traces = [made(1, verified=1, drafted=2, confidence=(0.9, 0.9))] * 3
    found = confidence_quality(traces, 2, (), None)
    assert found is not None
    assert [position.count for position in found.raw.survival.positions] == [3, 0]
    assert found.raw.survival.mean_ece == found.raw.survival.worst_ece == pytest.approx(0.1)


def test_nothing_is_known_behind_a_stop_token() -> None:
    traces = [made(1, verified=3, drafted=3, confidence=(0.9,) * 3, stops=True), made(0, confidence=(0.9,) * 4)]
    found = confidence_quality(traces, 4, (STOP,), None)
    assert found is not None
    assert [position.count for position in found.raw.survival.positions] == [2, 1, 1, 1]


def test_calibration_is_judged_beside_the_raw_confidences() -> None:
    """True chances are those of confidences softened by a temperature of 2."""
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.05, 0.95, 4000)
    sharp = 1 / (1 + ((1 - chance) / chance) ** 2)
    traces = [made(int(rng.uniform() < c), 1, confidence=(s,)) for c, s in zip(chance, sharp, strict=True)]
    found = confidence_quality(traces, 1, (), Calibration(temperatures=(2.0,)))
    assert found is not None
    assert found.calibrated is not None
    raw, better = found.raw.conditional.overall, found.calibrated.conditional.overall
    assert better.ece < 2 * better.noise < raw.ece
    assert better.auroc == pytest.approx(raw.auroc)


def test_no_confidences() -> None:
    assert confidence_quality([made(2)], 4, (), None) is None
    assert confidence_quality([], 4, (), None) is None
