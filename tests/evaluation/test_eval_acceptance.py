"""Counts and figures over rounds: exact numbers of hand-made rounds, and laws that hold for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.engine import RoundTrace
from dspark.evaluation import count_rounds

from .rounds import made, rounds


def test_figures_of_whole_blocks() -> None:
    counts = count_rounds([made(4), made(1), made(0), made(2)], 4)
    assert (counts.rounds, counts.drafted, counts.verified, counts.accepted, counts.committed) == (4, 16, 16, 7, 11)
    assert counts.reached_at == (4, 3, 2, 1)
    assert counts.accepted_at == (3, 2, 1, 1)
    assert counts.tau == counts.tau_full_blocks == 11 / 4
    assert counts.acceptance_rate == 7 / 16
    assert counts.conditional == (3 / 4, 2 / 3, 1 / 2, 1.0)
    assert counts.survival == pytest.approx((3 / 4, 2 / 4, 1 / 4, 1 / 4))


def test_a_cut_block_is_no_rejection() -> None:
    """One block rejected at the second draft, one cut after the first: nothing is known of a second one of that."""
    counts = count_rounds([made(1), made(1, verified=1, drafted=4)], 4)
    assert counts.reached_at == (2, 1, 0, 0)
    assert counts.conditional == (1.0, 0.0, None, None)
    assert counts.survival == (1.0, 0.0, 0.0, 0.0)
    assert counts.tau == 2.0


def test_what_no_block_reached_is_unknown() -> None:
    counts = count_rounds([made(1, verified=1, drafted=4)], 4)
    assert counts.survival == (1.0, None, None, None)
    assert counts.tau_full_blocks == 2.0


def test_an_accepted_stop_token_ends_the_round() -> None:
    counts = count_rounds([made(2, stops=True)], 4)
    assert (counts.verified, counts.committed, counts.reached_at) == (2, 2, (1, 1, 0, 0))


def test_rounds_without_drafts_count_as_rounds() -> None:
    counts = count_rounds([made(0, verified=0), made(3, verified=3)], 4)
    assert counts.tau == 2.5
    assert counts.reached_at == (1, 1, 1, 0)


def test_nothing() -> None:
    counts = count_rounds([], 2)
    assert (counts.tau, counts.acceptance_rate, counts.conditional) == (1.0, None, (None, None))
    assert count_rounds([made(0, verified=0)], 0).conditional == ()


@given(st.lists(rounds()))
def test_survival_is_the_running_product_of_conditional_acceptance(traces: list[RoundTrace]) -> None:
    counts = count_rounds(traces, 4)
    for k, share in enumerate(counts.survival):
        before = counts.conditional[: k + 1]
        known = [chance for chance in before if chance is not None]
        if share is None:
            assert 0.0 not in known
            assert None in before
        elif 0.0 in known:
            assert share == 0.0
        else:
            assert share == pytest.approx(math.prod(known))
            assert None not in before
    known_shares = [share for share in counts.survival if share is not None]
    assert known_shares == sorted(known_shares, reverse=True)


@given(st.lists(rounds(whole=True), min_size=1))
def test_tau_is_one_and_the_sum_of_survival_where_no_block_is_cut(traces: list[RoundTrace]) -> None:
    counts = count_rounds(traces, 4)
    assert counts.tau == pytest.approx(1 + sum(share or 0.0 for share in counts.survival))
    for k, share in enumerate(counts.survival, start=1):
        assert share == pytest.approx(sum(trace.accepted >= k for trace in traces) / len(traces))


@given(st.lists(rounds()), st.lists(rounds()))
def test_counts_add_up(first: list[RoundTrace], second: list[RoundTrace]) -> None:
    one, other, both = (count_rounds(traces, 4) for traces in (first, second, first + second))
    for name in ("rounds", "drafted", "verified", "accepted", "committed"):
        assert getattr(both, name) == getattr(one, name) + getattr(other, name)
    assert both.accepted_at == tuple(a + b for a, b in zip(one.accepted_at, other.accepted_at, strict=True))
    assert sum(both.accepted_at) == both.accepted
