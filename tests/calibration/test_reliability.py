"""Figures of agreement against definitions written out, and what is masked never counts."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from dspark.calibration import (
    NUM_BINS,
    auroc,
    brier,
    ece,
    expected_noise,
    mean_ece,
    reliability_bins,
    reliability_by_position,
)


def _ece_by_hand(probs: np.ndarray, labels: np.ndarray) -> float:
    total = 0.0
    for b in range(NUM_BINS):
        inside = [i for i, p in enumerate(probs) if min(math.floor(NUM_BINS * p), NUM_BINS - 1) == b]
        if inside:
            total += len(inside) / len(probs) * abs(probs[inside].mean() - labels[inside].mean())
    return total


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    probs = np.concatenate([rng.random(400), [0.0, 1.0, 0.05, 0.95]])
    return probs, (rng.random(404) < probs**1.5).astype(np.uint8)


def test_ece_is_the_definition(sample):
    probs, labels = sample
    assert ece(probs, labels) == pytest.approx(_ece_by_hand(probs, labels), abs=1e-12)


def test_ece_of_one_bin_is_the_difference_of_means():
    assert ece([0.11, 0.13], [1, 0]) == pytest.approx(0.38)


def test_a_probability_of_one_falls_into_the_last_bin():
    assert reliability_bins([1.0, 0.96], [1, 1]).count == (*(0,) * 19, 2)


def test_brier(sample):
    assert brier([0.2, 0.9], [0, 1]) == pytest.approx((0.04 + 0.01) / 2)


def test_auroc_counts_pairs_with_ties_as_half():
    scores = np.array([0.1, 0.4, 0.4, 0.4, 0.8, 0.8, 0.9])
    labels = np.array([0, 1, 0, 1, 0, 1, 1])
    pairs = [
        (s > t) + 0.5 * (s == t) for (s, y), (t, z) in product(zip(scores, labels, strict=True), repeat=2) if y > z
    ]
    assert auroc(scores, labels) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_auroc_of_equal_scores_is_a_half():
    assert auroc([0.3, 0.3, 0.3], [1, 0, 1]) == 0.5


def test_auroc_is_undefined_where_all_outcomes_are_the_same():
    assert math.isnan(auroc([0.1, 0.2], [1, 1]))


def test_bins_add_up(sample):
    probs, labels = sample
    bins = reliability_bins(probs, labels)
    filled = [(n, p, o) for n, p, o in zip(bins.count, bins.predicted, bins.observed, strict=True) if n]
    assert bins.total == len(probs)
    assert sum(n * o for n, _, o in filled) == pytest.approx(labels.sum())
    assert sum(n / len(probs) * abs(p - o) for n, p, o in filled) == pytest.approx(ece(probs, labels))


def test_empty_bins_are_not_numbers():
    bins = reliability_bins([0.5], [1])
    assert math.isnan(bins.predicted[0])
    assert bins.observed[10] == 1.0


def test_what_is_masked_never_counts(sample):
    probs, labels = sample
    mask = np.arange(len(probs)) % 3 > 0
    spoiled = np.where(mask, probs, np.nan)
    for figure in (ece, brier, auroc):
        assert figure(spoiled, labels, mask) == figure(probs[mask], labels[mask])


def test_nothing_to_count_gives_no_number():
    assert all(math.isnan(figure([0.5], [1], [False])) for figure in (ece, brier, auroc))


def test_figures_by_position_use_their_own_entries():
    probs = np.array([[0.9, 0.8], [0.4, np.nan], [0.7, np.nan]])
    labels = np.array([[1, 0], [0, 0], [1, 0]])
    first, second = reliability_by_position(probs, labels, ~np.isnan(probs))
    assert (first.count, second.count) == (3, 1)
    assert first.observed == pytest.approx(2 / 3)
    assert second.ece == pytest.approx(0.8)
    assert mean_ece((first, second)) == pytest.approx((first.ece + second.ece) / 2)


def test_a_position_nobody_reached_has_no_figures_and_is_left_out_of_the_mean():
    first, second = reliability_by_position([[0.9, np.nan]], [[1, 0]], [[True, False]])
    assert second.count == 0
    assert math.isnan(second.ece)
    assert mean_ece((first, second)) == first.ece


def test_noise_is_the_ece_of_exact_probabilities():
    rng = np.random.default_rng(0)
    probs = rng.beta(2, 1, 1500)
    seen = [ece(probs, rng.random(1500) < probs) for _ in range(200)]
    assert expected_noise(probs) == pytest.approx(np.mean(seen), rel=0.05)
