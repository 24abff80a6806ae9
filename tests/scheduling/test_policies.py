import json
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from dspark.core import InputError
from dspark.scheduling import (
    ConfidenceThreshold,
    FixedLength,
    Reveal,
    StepOutcome,
    StepPolicy,
    StepView,
    check_policy,
    make_step_policy,
    policy_name,
)

from .worlds import view

GOLDEN = Path(__file__).parents[1] / "golden"
POLICIES = [FixedLength(), FixedLength(0), FixedLength(2), ConfidenceThreshold(0.0), ConfidenceThreshold(0.5)]


Block = tuple[list[int], np.ndarray]
"""Drafted tokens [R] and confidences [R, G] of a step."""


def plan(policy: StepPolicy, proposed: Sequence[int], confidence: ArrayLike | None = None) -> tuple[int, ...]:
    """What a policy admits of blocks that were drafted as far as it wanted them."""
    reveal = Reveal(policy.begin_step(view(0, proposed)), confidence)
    policy.admit(reveal)
    return tuple(reveal.lengths.tolist())


@pytest.mark.parametrize(("k", "lengths"), [(None, (0, 3, 7)), (0, (0, 0, 0)), (4, (0, 3, 4)), (99, (0, 3, 7))])
def test_fixed_length_is_capped_by_what_was_proposed(k: int | None, lengths: tuple[int, ...]) -> None:
    assert plan(FixedLength(k), (0, 3, 7)) == lengths


def test_threshold_cuts_before_the_first_weak_slot() -> None:
    confidence = [[0.9, 0.4, 0.9], [0.1, 0.9, 0.9], [0.5, 0.5, 0.5], [0.9, 0.9, 0.9]]
    assert plan(ConfidenceThreshold(0.5), [3, 3, 3, 2], confidence) == (1, 0, 3, 2)


def test_threshold_treats_nan_as_weak() -> None:
    assert plan(ConfidenceThreshold(0.5), [3], [[0.9, float("nan"), 0.9]]) == (1,)


def test_nothing_to_plan() -> None:
    for policy in POLICIES:
        assert plan(policy, (), np.zeros((0, 7))) == ()
        assert plan(policy, (0, 0), np.zeros((2, 0))) == (0, 0)


def test_threshold_reproduces_the_golden_lengths() -> None:
    """Rounds of the thresholded runs, planned from the whole blocks that the unthresholded runs recorded."""
    cases = json.loads((GOLDEN / "e2e" / "trace.json").read_text())["cases"]
    whole = {
        (tuple(case["prompt_ids"]), entry["start"]): entry["confidence"]
        for case in cases
        if case["confidence_threshold"] == 0
        for entry in case["rounds"]
    }
    checked = cut = 0
    for case in cases:
        policy = ConfidenceThreshold(case["confidence_threshold"])
        for entry in case["rounds"]:
            confidence = whole.get((tuple(case["prompt_ids"]), entry["start"]))
            if confidence is not None:
                assert plan(policy, [len(confidence)], [confidence]) == (len(entry["draft_tokens"]),)
                checked += 1
                cut += len(entry["draft_tokens"]) < len(confidence)
    assert checked > 50
    assert cut > 5


@st.composite
def changed_later(draw: st.DrawFn) -> tuple[Block, Block, int, int]:
    """Two steps that differ only in entries >= k of request r's confidence."""
    num_requests, block = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    levels = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    rows = st.lists(st.lists(levels, min_size=block, max_size=block), min_size=num_requests, max_size=num_requests)
    before = np.array(draw(rows), np.float32)
    r, k = draw(st.integers(0, num_requests - 1)), draw(st.integers(0, block))
    after = before.copy()
    after[r, k:] = draw(st.lists(levels, min_size=block - k, max_size=block - k))
    proposed = draw(st.lists(st.integers(0, block), min_size=num_requests, max_size=num_requests))
    return (proposed, before), (proposed, after), r, k


@pytest.mark.pitfall(6)
@given(changed_later())
def test_later_confidence_never_decides_about_an_earlier_slot(case: tuple[Block, Block, int, int]) -> None:
    before, after, r, k = case
    for policy in POLICIES:
        plans = plan(policy, *before), plan(policy, *after)
        for slot in range(k):  # slot k - 1 and all before it
            assert (plans[0][r] > slot) == (plans[1][r] > slot)
        for lengths in plans:
            assert all(0 <= length <= most for length, most in zip(lengths, before[0], strict=True))


class Retrospective:
    """Known bad: searches the best length over the whole block, knowing confidences that depend on drawn tokens."""

    name = "retrospective"
    needs_confidence = True

    def begin_step(self, view: StepView) -> np.ndarray:
        return view.limits

    def admit(self, reveal: Reveal) -> None:
        steps_per_second = np.array([1.0, 0.5, 0.45])
        gained = np.concatenate(([0.0], np.cumsum(reveal._survival()[0])))
        reveal.admit_first([int(np.argmax((1 + gained) * steps_per_second))])

    def outcome(self, outcome: StepOutcome) -> None:
        pass


def first_token_law(policy: StepPolicy) -> np.ndarray:
    """Exact law of the first emitted token: vocabulary {A, B}, two slots, second confidence 0.9 after A, 0 after B."""
    target, draft, law = np.array([0.7, 0.3]), np.array([0.5, 0.5]), np.zeros(2)
    for token, _ in product(range(2), range(2)):
        (length,) = plan(policy, [2], [[0.8, 0.9 if token == 0 else 0.0]])
        accepted = min(1.0, target[token] / draft[token]) if length > 0 else 0.0
        residual = np.maximum(target - draft, 0.0) if length > 0 else target
        law[token] += 0.25 * accepted
        law += 0.25 * (1 - accepted) * residual / residual.sum()
    return law


@pytest.mark.pitfall(6)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_counter_example_of_the_method_keeps_the_target_distribution(policy: StepPolicy) -> None:
    assert first_token_law(policy) == pytest.approx([0.7, 0.3], abs=1e-12)


@pytest.mark.pitfall(6)
def test_a_retrospective_policy_fails_the_same_test() -> None:
    assert first_token_law(Retrospective()) == pytest.approx([0.85, 0.15], abs=1e-12)


@pytest.mark.pitfall(31)
def test_a_policy_without_its_confidence_head_is_refused() -> None:
    with pytest.raises(InputError, match=r"'threshold:0\.5' needs .* confidence head, and ngram has none; use .*fixed"):
        check_policy(ConfidenceThreshold(0.5), has_confidence=False, drafter="ngram")
    check_policy(ConfidenceThreshold(0.5), has_confidence=True)
    check_policy(FixedLength(3), has_confidence=False)


@pytest.mark.pitfall(31)
def test_missing_confidence_is_never_read_as_numbers() -> None:
    with pytest.raises(AssertionError, match="without one"):
        plan(ConfidenceThreshold(0.5), [3])
    with pytest.raises(AssertionError, match="1 rows for 2"):
        Reveal([3, 3], np.ones((1, 3)))
    with pytest.raises(AssertionError, match="2 slots for a block of 3"):
        Reveal([3], np.ones((1, 2)))


def test_base_rows_count_anchors_and_prefill() -> None:
    assert view(0, [7, 7], prefill=100).base_rows == 2 + 100


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_names_read_back(policy: StepPolicy) -> None:
    assert make_step_policy(policy.name, block_size=7, num_slots=1) == policy
    assert make_step_policy(policy, block_size=7, num_slots=1) is policy
    assert policy_name(policy) == policy_name(f" {policy.name} ") == policy.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("treshold:0.5", "did you mean 'threshold'.*expected one of: async, sync, fixed, fixed:K, threshold:T"),
        ("fixd", "did you mean 'fixed'"),
        ("", "unknown policy ''; expected one of"),
        ("zzz", "unknown policy 'zzz'; expected one of"),
        ("fixed:", "K must be an integer >= 0, got ''"),
        ("fixed:2.5", r"K must be an integer >= 0, got '2\.5'"),
        ("fixed:-1", ">= 0, got -1"),
        ("threshold", r"T must be a number in \[0, 1\], got ''"),
        ("threshold:half", "T must be a number .*got 'half'"),
        ("threshold:nan", r"in \[0, 1\], got nan"),
        ("threshold:1.01", r"in \[0, 1\], got 1\.01"),
        ("threshold:-0.1", r"in \[0, 1\], got -0\.1"),
        ("threshold:inf", r"in \[0, 1\], got inf"),
        (FixedLength, "must be a text or a StepPolicy"),
        (0.5, r"must be a text or a StepPolicy, got 0\.5"),
    ],
)
def test_bad_policies_are_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_step_policy(text, block_size=7, num_slots=1)
    with pytest.raises(InputError, match=message):
        policy_name(text)


@pytest.mark.parametrize("k", [-1, 2.0, True, "3"])
def test_bad_lengths(k: object) -> None:
    with pytest.raises(InputError, match="integer >= 0"):
        FixedLength(k)  # type: ignore[arg-type]


@pytest.mark.parametrize("t", [float("nan"), 1.5, -0.1, True, "0.5", None])
def test_bad_thresholds(t: object) -> None:
    with pytest.raises(InputError, match=r"in \[0, 1\]"):
        ConfidenceThreshold(t)  # type: ignore[arg-type]


def test_planning_256_requests_is_under_a_millisecond() -> None:
    confidence = np.random.default_rng(0).random((256, 16))
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        plan(ConfidenceThreshold(0.5), [16] * 256, confidence)
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3
