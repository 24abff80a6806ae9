"""Small figures of load tests by hand: recorded outcomes, percentiles, resampled rates."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.engine import RoundTrace
from dspark.evaluation.bootstrap import Bootstrapped, geometric_mean_of, rate_of, share_of_gain
from dspark.evaluation.load import Percentiles, accepted_after


def test_outcomes_of_recorded_drafts() -> None:
    def trace(place: int, drafted: tuple[int, ...]) -> RoundTrace:
        return RoundTrace(
            anchor_position=10 + place, anchor=0, drafted=drafted, confidence=(), verified=0, accepted=0, committed=()
        )

    text = (5, 6, 7, 8)
    traces = [trace(0, (6, 7, 9)), trace(1, (1, 8)), trace(2, (8, 4))]
    assert accepted_after(text, 10, traces) == (2, 0, 1, 0)


def test_percentiles_by_hand() -> None:
    assert Percentiles.of(np.array([])) is None
    assert Percentiles.of(np.arange(1.0, 101.0)) == Percentiles(p50=50.0, p95=95.0, p99=99.0)
    assert Percentiles.of(np.array([3.0, 1.0]), np.array([1, 99])) == Percentiles(p50=1.0, p95=1.0, p99=1.0)
    assert Percentiles.of(np.array([2.0])) == Percentiles(p50=2.0, p95=2.0, p99=2.0)


def test_resampled_figures_by_hand() -> None:
    draws = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    rate = rate_of([10, 30], [2.0, 3.0], draws)
    assert rate.value == 8.0
    assert rate.replicates is not None
    assert rate.replicates.tolist() == [5.0, 10.0, 8.0]
    mean = geometric_mean_of([Bootstrapped(value=2.0, replicates=np.array([1.0, 4.0])), _flat(8.0)])
    assert mean.value == pytest.approx(4.0)
    assert mean.replicates is not None
    assert mean.replicates.tolist() == pytest.approx([8**0.5, 32**0.5])
    assert share_of_gain(_flat(1.3), _flat(1.4)).value == pytest.approx(0.75)


def _flat(value: float) -> Bootstrapped:
    return Bootstrapped(value=value, replicates=np.array([value, value]))
