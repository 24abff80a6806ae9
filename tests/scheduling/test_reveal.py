"""Admission: golden numbers, one walk whatever the way, and nothing learnt from what is not admitted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.scheduling import Reveal, search_capacity
from dspark.scheduling.capacity import PastSurvivals

INSTANCES = json.loads((Path(__file__).parents[1] / "golden" / "scheduler.json").read_text())["instances"]
LEVELS = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, float("nan")])


def theta(instance: dict, lengths: list[int]) -> float:
    """Throughput of lengths, as the golden file defines it."""
    survival = np.cumprod(np.array(instance["confidence"]), axis=1)
    inside = np.arange(instance["gamma"]) < np.array(lengths)[:, None]
    return float((instance["R"] + survival[inside].sum()) * instance["sps"][instance["R"] + sum(lengths) - 1])


def reveal_of(instance: dict) -> Reveal:
    return Reveal([instance["gamma"]] * instance["R"], instance["confidence"])


@pytest.mark.pitfall(6)
@pytest.mark.parametrize("instance", INSTANCES, ids=lambda i: f"{i['id']}-{i['kind']}")
def test_golden(instance: dict) -> None:
    requests = instance["R"]
    rates = np.array(instance["sps"][requests - 1 :])
    reveal = reveal_of(instance)
    reveal.climb(rates)
    assert reveal.lengths.tolist() == instance["early_stop"]["lengths"]
    assert theta(instance, reveal.lengths.tolist()) == pytest.approx(instance["early_stop"]["theta"], rel=1e-9)

    past = PastSurvivals(np.cumprod(np.array(instance["confidence"]), axis=1)[None])
    capacity = search_capacity(past, 1 / rates, tokens=requests)
    assert capacity.throughput == pytest.approx(instance["no_stop"]["theta"], rel=1e-9)
    assert capacity.throughput == pytest.approx(instance["optimum"]["theta"], rel=1e-9)
    reveal = reveal_of(instance)
    reveal.admit_top(capacity.count, capacity.floor)
    assert reveal.lengths.tolist() == instance["no_stop"]["lengths"]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[int], np.ndarray]:
    """Proposed lengths and confidences with many ties, zeros and nans."""
    requests, block = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    rows = st.lists(st.lists(LEVELS, min_size=block, max_size=block), min_size=requests, max_size=requests)
    proposed = draw(st.lists(st.integers(0, block), min_size=requests, max_size=requests))
    return proposed, np.array(draw(rows), np.float64)


def walk(proposed: list[int], confidence: np.ndarray, count: int, floor: float) -> list[int]:
    """Admit the best of the next slots, one at a time, seeing nothing else."""
    reveal, lengths = Reveal(proposed, confidence), [0] * len(proposed)
    for _ in range(count):
        shown = reveal.frontier()
        keys = [(-shown[r], lengths[r], r) for r in range(len(proposed)) if shown[r] >= floor]
        if not keys:
            break
        _, _, best = min(keys)
        reveal.admit(best)
        lengths[best] += 1
    return reveal.lengths.tolist()


@given(blocks(), st.integers(0, 20), st.sampled_from([0.0, 0.3, 0.5]))
def test_top_is_a_walk_that_sees_next_slots_only(case: tuple[list[int], np.ndarray], count: int, floor: float) -> None:
    """The heart of the proof that top K is lossless: the same plan, made with no confidence behind a rejected slot."""
    proposed, confidence = case
    reveal = Reveal(proposed, confidence)
    reveal.admit_top(count, floor)
    assert reveal.lengths.tolist() == walk(proposed, confidence, count, floor)


@given(blocks(), st.integers(0, 20), st.data())
def test_what_is_admitted_first_is_not_admitted_twice(
    case: tuple[list[int], np.ndarray], count: int, data: st.DataObject
) -> None:
    proposed, confidence = case
    forced = data.draw(st.lists(st.integers(0, 3), min_size=len(proposed), max_size=len(proposed)))
    reveal = Reveal(proposed, confidence)
    reveal.admit_first(forced)
    start = reveal.lengths
    assert start.tolist() == np.minimum(forced, proposed).tolist()
    reveal.admit_top(count)
    assert reveal.lengths.sum() - start.sum() == min(count, sum(proposed) - start.sum())
    assert (reveal.lengths >= start).all()
    assert (reveal.lengths <= proposed).all()


RULES = {
    "first": lambda reveal, _: reveal.admit_first([2, 0, 1, 3][: len(reveal.proposed)]),
    "trusted": lambda reveal, _: reveal.admit_trusted(0.5),
    "top": lambda reveal, _: reveal.admit_top(4),
    "top with floor": lambda reveal, _: reveal.admit_top(4, 0.3),
    "forced, then top": lambda reveal, _: (reveal.admit_first([1] * len(reveal.proposed)), reveal.admit_top(2)),
    "climb": lambda reveal, rates: reveal.climb(rates),
    "forced, then climb": lambda reveal, rates: (
        reveal.admit_first([0, 2, 0, 0][: len(reveal.proposed)]),
        reveal.climb(rates),
    ),
}


def retrospective(reveal: Reveal, rates: np.ndarray) -> None:
    """Known bad: breaks into the confidences to search the best capacity over the whole curve."""
    survival = np.maximum(reveal._survival(), 0.0)
    found = search_capacity(PastSurvivals(survival[None]), 1 / rates, tokens=len(survival))
    reveal.admit_top(found.count)


def difference(rule, case, later, r: int, k: int, rates: np.ndarray) -> bool:
    """Whether changing confidences behind slot k of request r changes if one of slots 0 .. k of r is verified."""
    proposed, confidence = case
    changed = confidence.copy()
    changed[r, k + 1 :] = later
    plans = []
    for numbers in (confidence, changed):
        reveal = Reveal(proposed, numbers)
        rule(reveal, rates)
        plans.append(min(int(reveal.lengths[r]), k + 1))
    return plans[0] != plans[1]


@pytest.mark.pitfall(6)
@pytest.mark.parametrize("name", RULES)
@given(blocks(), st.data())
def test_prefix_measurability(name: str, case: tuple[list[int], np.ndarray], data: st.DataObject) -> None:
    """Confidence behind slot k has seen the token of slot k; it must not decide about slot k or any before it."""
    r = data.draw(st.integers(0, len(case[0]) - 1))
    k = data.draw(st.integers(0, case[1].shape[1] - 1))
    later = data.draw(st.lists(LEVELS, min_size=case[1].shape[1] - k - 1, max_size=case[1].shape[1] - k - 1))
    steps = data.draw(st.lists(st.sampled_from([1.0, 0.9, 0.5, 0.99]), min_size=20, max_size=20))
    assert not difference(RULES[name], case, later, r, k, np.cumprod([1.0, *steps]))


@pytest.mark.pitfall(6)
def test_a_retrospective_search_fails_the_same_check() -> None:
    case, rates = ([2], np.array([[0.8, 0.9]])), np.array([1.0, 0.5, 0.45])
    assert difference(retrospective, case, [0.0], 0, 0, rates)
    assert not difference(RULES["climb"], case, [0.0], 0, 0, rates)


def test_nothing_behind_the_frontier_is_shown() -> None:
    reveal = Reveal([2, 0, 1], [[0.5, 0.5], [1.0, 1.0], [0.25, 1.0]])
    assert reveal.frontier().tolist() == [0.5, -1.0, 0.25]
    reveal.admit(0)
    assert reveal.frontier().tolist() == [0.25, -1.0, 0.25]
    reveal.admit(2)
    assert reveal.frontier().tolist() == [0.25, -1.0, -1.0]
    with pytest.raises(AssertionError, match="block of request 2 is at its end"):
        reveal.admit(2)


def test_disclosure_ends_admission() -> None:
    reveal = Reveal([2, 1], [[0.5, 0.5], [0.25, 1.0]])
    reveal.admit_top(1)
    stated = reveal.close()
    assert stated is not None
    assert stated.tolist() == [[0.5, 0.25], [0.25, -1.0]]
    for admit in (lambda: reveal.admit(0), lambda: reveal.admit_top(1), lambda: reveal.admit_first([2, 1])):
        with pytest.raises(AssertionError, match="closed"):
            admit()
    assert reveal.lengths.tolist() == [1, 0]


def test_without_a_confidence_head_only_fixed_lengths_can_be_admitted() -> None:
    reveal = Reveal([2, 3])
    assert not reveal.has_confidence
    for use in (lambda: reveal.admit_top(2), lambda: reveal.admit_trusted(0.5), reveal.frontier):
        with pytest.raises(AssertionError, match="without one"):
            use()
    reveal.admit_first([5, 1])
    assert reveal.lengths.tolist() == [2, 1]
    assert reveal.close() is None


def test_nobody_decodes() -> None:
    reveal = Reveal([], np.zeros((0, 4)))
    reveal.admit_top(3)
    reveal.climb(np.ones(1))
    assert reveal.lengths.tolist() == []
