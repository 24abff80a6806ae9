"""Calibration that follows what is verified: towards the truth, bounded, and never from what was not verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dspark.calibration import (
    Calibration,
    OnlineCalibration,
    OnlineOptions,
    ece,
    from_sglang_temperatures,
    to_sglang_temperatures,
)
from dspark.core import InputError


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def serve(online: OnlineCalibration, rounds: int, offset: float, scale: float = 1.0, seed: int = 0, verified: int = 4):
    """A head whose stated logits are (true logit - offset) / scale; four positions, sixteen requests a step."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        true = rng.normal(0.8, 1.0, (16, 4))
        stated = _sigmoid((true - offset) / scale)
        hits = rng.random((16, 4)) < _sigmoid(true)
        lengths = np.full(16, verified)
        accepted = np.minimum(np.logical_and.accumulate(hits, axis=1).sum(axis=1), lengths)
        online.observe(stated, lengths, accepted)
    return online


def test_finds_what_is_wrong():
    online = serve(OnlineCalibration(4), 400, offset=-1.0, scale=1.5)
    first = online.state()[0]
    assert (first.scale, first.offset) == (pytest.approx(1.5, abs=0.25), pytest.approx(-1.0, abs=0.25))
    assert first.observed == pytest.approx(first.corrected, abs=0.02)
    assert abs(first.stated - first.observed) > 0.05
    calibration = online.calibration
    assert calibration is not None
    assert calibration.temperatures[0] == pytest.approx(1 / first.scale)


def test_nothing_to_correct():
    online = OnlineCalibration(4)
    assert online.calibration is None
    state = serve(online, 400, offset=0.0).state()[0]
    assert (state.scale, state.offset) == (pytest.approx(1.0, abs=0.1), pytest.approx(0.0, abs=0.1))


def test_drift_is_followed_and_faded():
    online = OnlineCalibration(4, OnlineOptions(memory=500))
    serve(online, 150, offset=1.0)
    before = online.state()[0].offset
    serve(online, 150, offset=-1.0, seed=1)
    assert before > 0.6
    assert online.state()[0].offset < -0.6


def test_bounded():
    state = serve(
        OnlineCalibration(4, OnlineOptions(max_offset=0.5, max_scale=1.2)), 300, offset=3.0, scale=3.0
    ).state()
    assert all(abs(position.offset) <= 0.5 and 1 / 1.2 <= position.scale <= 1.2 for position in state)


def test_positions_that_were_not_verified_learn_nothing():
    online = serve(OnlineCalibration(4), 100, offset=1.0, verified=2)
    assert [position.trials > 0 for position in online.state()] == [True, True, False, False]
    assert (online.state()[3].offset, online.state()[3].scale) == (0.0, 1.0)


def test_entries_that_were_not_reached_are_not_read():
    lengths, accepted = np.array([3, 1]), np.array([1, 0])
    found = []
    for rest in (0.01, 0.99, float("nan")):
        online = OnlineCalibration(4)
        online.observe(np.array([[0.8, 0.6, rest, rest], [0.3, rest, rest, rest]]), lengths, accepted)
        found.append(online.state())
    assert found[0] == found[1] == found[2]


def test_off_reset_and_short_blocks():
    off = serve(OnlineCalibration(4, enabled=False), 20, offset=1.0)
    assert off.calibration is None
    assert off.state()[0].trials == 0
    online = serve(OnlineCalibration(4), 20, offset=1.0)
    online.reset()
    assert online.calibration is None
    online.observe(np.array([[0.5, 0.9]]), np.array([2]), np.array([2]))
    assert [position.trials for position in online.state()] == [1, 1, 0, 0]
    online.observe(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0, np.int64))


def test_extreme_confidences_stay_numbers():
    online = OnlineCalibration(2)
    for _ in range(50):
        online.observe(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2, 2]), np.array([0, 2]))
    assert all(np.isfinite((position.scale, position.offset)).all() for position in online.state())


def test_golden_logits(golden: Path):
    """Streamed through once, the golden rounds make survivals about as honest as the fit on all of them."""
    numbers = load_file(golden / "sts.safetensors")
    confidence = _sigmoid(numbers["logits"].astype(np.float64))
    accepted = numbers["prefix_labels"].sum(axis=1, dtype=np.int64)
    online = OnlineCalibration(confidence.shape[1], OnlineOptions(memory=1e5))
    for rows in np.array_split(np.arange(len(confidence)), 50):
        online.observe(confidence[rows], np.full(len(rows), confidence.shape[1]), accepted[rows])
    calibration = online.calibration
    assert calibration is not None
    stated = _sigmoid(numbers["eval_logits"].astype(np.float64))
    survival = np.cumprod(calibration.apply_array(stated), axis=1)
    found = np.array([ece(survival[:, k], numbers["eval_prefix_labels"][:, k]) for k in range(survival.shape[1])])
    assert found.mean() < 0.5 * numbers["eval_ece_before"].mean()
    assert found.mean() < numbers["eval_ece_after"].mean() + 0.01


@pytest.mark.parametrize("fields", [{"memory": 1}, {"max_scale": 0.5}, {"prior_offset": 0}, {"max_offset": -1}])
def test_bad_options(fields):
    with pytest.raises(InputError, match="memory must be above 1"):
        OnlineOptions(**fields)


def test_sglang_temperatures_both_ways():
    calibration = Calibration(temperatures=(0.9, 1.5))
    assert from_sglang_temperatures(to_sglang_temperatures(calibration, dataset="chat", num_samples=3)) == calibration
    assert from_sglang_temperatures('{"temperatures": [0.9, 1.5]}') == calibration
    with pytest.raises(InputError, match="has offsets"):
        to_sglang_temperatures(Calibration(temperatures=(1.0,), offsets=(0.5,)))
    for text in ("{", "{}", "[]", '{"temperatures": [0]}'):
        with pytest.raises(InputError, match="no temperatures as SGLang reads them"):
            from_sglang_temperatures(text)
