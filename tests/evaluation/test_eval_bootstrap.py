"""Intervals over prompts."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.evaluation.bootstrap import Estimate, mean_of, ratio_of, resamples, tau_of


def test_resamples_take_as_many_prompts_as_there_are() -> None:
    draws = resamples(5, 100, 3)
    assert draws is not None
    assert draws.shape == (100, 5)
    assert (draws.sum(axis=1) == 5).all()
    assert np.array_equal(draws, resamples(5, 100, 3))
    assert not np.array_equal(draws, resamples(5, 100, 4))


def test_a_single_prompt_has_no_interval() -> None:
    assert resamples(1, 100, 0) is None
    assert tau_of([6], [2], None).estimate() == Estimate(value=3.0)


def test_tau_is_all_tokens_over_all_rounds() -> None:
    draws = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    tau = tau_of([10, 2], [2, 2], draws)
    assert tau.value == 3.0
    assert tau.replicates is not None
    assert tau.replicates.tolist() == [3.0, 5.0, 1.0]


def test_prompts_without_rounds_have_tau_one() -> None:
    draws = np.array([[2.0, 0.0], [1.0, 1.0]])
    tau = tau_of([0, 4], [0, 2], draws)
    assert tau.replicates is not None
    assert tau.replicates.tolist() == [1.0, 2.0]


def test_an_arm_over_itself_is_exactly_one() -> None:
    """Resamples are shared, so what two arms have in common cancels."""
    draws = resamples(4, 200, 0)
    tau, double = tau_of([3, 9, 4, 8], [3, 3, 2, 2], draws), tau_of([6, 18, 8, 16], [3, 3, 2, 2], draws)
    assert ratio_of(double, tau).estimate() == Estimate(value=2.0, low=2.0, high=2.0)
    alone = tau.estimate()
    assert alone.low is not None
    assert alone.high is not None
    assert alone.low < alone.value < alone.high


def test_the_mean_of_sets_is_unweighted() -> None:
    parts = [tau_of([4, 4], [2, 2], resamples(2, 50, 0, 0)), tau_of([4, 4, 4, 4], [1, 1, 1, 1], resamples(4, 50, 0, 1))]
    assert mean_of(parts).estimate() == Estimate(value=3.0, low=3.0, high=3.0)
    assert mean_of([*parts, tau_of([3], [1], None)]).estimate() == Estimate(value=3.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        rounds = rng.integers(5, 15, 40)
        committed = rng.binomial(rounds * 3, 0.5) + rounds  # true tau 2.5
        estimate = tau_of(committed.tolist(), rounds.tolist(), resamples(40, 400, trial)).estimate()
        assert estimate.low is not None
        assert estimate.high is not None
        hits += estimate.low <= 2.5 <= estimate.high
    assert 0.88 <= hits / 200 <= 0.99


def test_intervals_of_dependent_rounds_follow_the_prompts() -> None:
    """All rounds of a prompt alike: the interval is that of 10 prompts, however many rounds they have."""
    few = tau_of([1 * n for n in range(1, 11)], [1] * 10, resamples(10, 500, 0)).estimate()
    many = tau_of([100 * n for n in range(1, 11)], [100] * 10, resamples(10, 500, 0)).estimate()
    assert (many.low, many.high) == pytest.approx((few.low, few.high))
