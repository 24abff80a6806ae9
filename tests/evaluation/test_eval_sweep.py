"""Thresholds applied to recorded rounds afterwards."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.engine import RoundTrace
from dspark.evaluation import count_rounds, sweep
from dspark.scheduling import ConfidenceThreshold, Reveal

from .rounds import made, rounds


def test_exact_numbers() -> None:
    traces = [
        made(4, confidence=(0.95, 0.85, 0.5, 0.9)),
        made(1, confidence=(0.55, 0.3, 0.9, 0.9)),
        made(0, confidence=(0.05, 0.9, 0.9, 0.9)),
    ]
    points = {point.threshold: point for point in sweep(traces, 4)}
    assert list(points) == pytest.approx([number / 10 for number in range(10)])
    whole = points[0.0]
    assert (whole.rounds, whole.verify_len, whole.tau, whole.acceptance_rate) == (3, 4.0, 8 / 3, 5 / 12)
    half = points[0.4]  # verifies 4, 1 and 0
    assert (half.verify_len, half.tau, half.acceptance_rate) == pytest.approx((5 / 3, (5 + 2 + 1) / 3, 1.0))
    high = points[0.9]  # verifies 1, 0 and 0
    assert (high.verify_len, high.tau, high.acceptance_rate) == pytest.approx((1 / 3, 4 / 3, 1.0))


def test_nothing_verified() -> None:
    (*_, last) = sweep([made(2, confidence=(0.1,) * 4)], 4)
    assert (last.acceptance_rate, last.verify_len, last.tau) == (None, 0.0, 1.0)


def test_a_stop_token_is_met_only_if_it_is_verified() -> None:
    points = {p.threshold: p for p in sweep([made(2, confidence=(0.9, 0.5, 0.9, 0.9), drafted=4, stops=True)], 4)}
    assert (points[0.0].tau, points[0.0].verify_len) == (2.0, 2.0)  # ends there, no bonus
    assert (points[0.6].tau, points[0.6].verify_len) == (2.0, 1.0)  # the draft before it, and a bonus


def test_only_whole_blocks_are_known() -> None:
    assert sweep([made(1, verified=1, drafted=4, confidence=(0.5,) * 4)], 4) == ()
    assert sweep([made(1, verified=2, confidence=(0.5,) * 2)], 4) == ()
    assert sweep([made(1)], 4) == ()


def test_what_the_policy_sees_is_compared() -> None:
    trace = made(4, confidence=(0.8,) * 4)
    assert {p.threshold: p.verify_len for p in sweep([trace], 4)}[0.6] == 4.0
    trace = replace(trace, calibrated=(0.59,) * 4)
    assert {p.threshold: p.verify_len for p in sweep([trace], 4)}[0.6] == 0.0


@given(st.lists(rounds(whole=True), min_size=1))
def test_the_policy_itself_agrees(traces: list[RoundTrace]) -> None:
    """Each round replayed with the lengths that the engine's policy plans."""
    confidence = [trace.confidence for trace in traces]
    for point in sweep(traces, 4):
        reveal = Reveal([4] * len(traces), confidence)
        ConfidenceThreshold(point.threshold).admit(reveal)
        lengths = reveal.lengths.tolist()
        kept = [min(trace.accepted, length) for trace, length in zip(traces, lengths, strict=True)]
        assert point.verify_len == pytest.approx(sum(lengths) / len(traces))
        assert point.tau == pytest.approx(1 + sum(kept) / len(traces))


@given(st.lists(rounds(), min_size=1))
def test_zero_is_the_recorded_run(traces: list[RoundTrace]) -> None:
    whole = [trace for trace in traces if len(trace.drafted) == 4 and len(trace.confidence) == 4]
    whole = [t for t in whole if t.verified == 4 or len(t.committed) == t.accepted]
    points = sweep(traces, 4)
    if whole:
        counts = count_rounds(whole, 4)
        assert (points[0].tau, points[0].acceptance_rate) == (pytest.approx(counts.tau), counts.acceptance_rate)
        assert all(a.tau >= b.tau and a.verify_len >= b.verify_len for a, b in pairwise(points))
    else:
        assert points == ()
