"""The law of answers whose verify lengths the engine itself planned, from policy to packed rows as they really run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.scheduling import ConfidenceThreshold, EarlyStop, FixedLength, PastCapacity, StepPolicy

from ..engine.scripted import Block, Scripted, verified, warmed
from .rounds import Tokens
from .test_step_policies import (
    ALWAYS,
    CURVES,
    GAMMA,
    SECOND_TARGET,
    Retrospective,
    check_first_counter_example,
    confidence,
    second_counter_example,
    target_law,
    texts,
)

__all__ = ["texts"]

STEPS = 3


def engine_plan(
    make: Callable[[], StepPolicy], drafts: Sequence[Block], state: Callable[[Block, int], Sequence[float]] = confidence
) -> tuple[int, ...]:
    """What an engine verifies of these blocks; its past is the same for all of them."""
    drafter = Scripted(len(drafts[0]), state)
    return verified(warmed(make(), drafter, len(drafts), STEPS), drafter, drafts)


def joint_law(make: Callable[[], StepPolicy], requests: int, texts: dict[Tokens, np.ndarray]) -> np.ndarray:
    """Law of the first three tokens of all requests together."""
    blocks, law = list(product(range(2), repeat=GAMMA)), 0.0
    for drafts in product(blocks, repeat=requests):
        part = np.array(0.25**requests)
        for block, length in zip(drafts, engine_plan(make, drafts), strict=True):
            part = np.multiply.outer(part, texts[block[:length]])
        law = law + part
    return np.asarray(law)


def makers(curve: str, requests: int) -> dict[str, Callable[[], StepPolicy]]:
    kw = {"block_size": GAMMA, "num_slots": requests}
    return {
        "fixed": lambda: FixedLength(1),
        "threshold": lambda: ConfidenceThreshold(0.78),
        "sync": lambda: EarlyStop(CURVES[curve], options=ALWAYS, **kw),
        "async": lambda: PastCapacity(CURVES[curve], options=ALWAYS, **kw),
        "async, may not draft": lambda: PastCapacity(CURVES[curve], **kw),
        "retrospective": lambda: Retrospective(CURVES[curve]),
    }


@pytest.mark.pitfall(6)
@pytest.mark.parametrize("name", ["fixed", "threshold", "sync", "async", "async, may not draft"])
@pytest.mark.parametrize(("curve", "requests"), [("counter-example", 1), ("counter-example for two", 2), ("cliffs", 2)])
def test_the_engine_keeps_the_joint_law(curve: str, requests: int, name: str, texts: dict[Tokens, np.ndarray]) -> None:
    """Confidences depend on drawn tokens, curves are jagged, and two requests compete for the same rows."""
    found = joint_law(makers(curve, requests)[name], requests, texts)
    np.testing.assert_allclose(found, target_law(requests), atol=1e-9)


@pytest.mark.pitfall(6)
@pytest.mark.parametrize(("curve", "requests"), [("counter-example", 1), ("counter-example for two", 2)])
def test_a_retrospective_search_in_the_engine_does_not(
    curve: str, requests: int, texts: dict[Tokens, np.ndarray]
) -> None:
    found = joint_law(makers(curve, requests)["retrospective"], requests, texts)
    assert found.sum() == pytest.approx(1.0)
    assert np.abs(found - target_law(requests)).max() > 1e-3


@pytest.mark.pitfall(6)
def test_first_counter_example_in_the_engine(texts: dict[Tokens, np.ndarray]) -> None:
    made = makers("counter-example", 1)
    chances = {name: float(joint_law(made[name], 1, texts)[0].sum()) for name in ("retrospective", "sync", "async")}
    check_first_counter_example(chances)


@pytest.mark.pitfall(6)
def test_second_counter_example_in_the_engine() -> None:
    """A drafter whose confidence knows the token of its own slot breaks its contract, and the law with it."""

    def first(state: Callable[[Block, int], Sequence[float]]) -> np.ndarray:
        return second_counter_example(
            lambda threshold, token: engine_plan(lambda: ConfidenceThreshold(threshold), [(token,)], state)[0]
        )

    np.testing.assert_allclose(first(lambda block, _: [(1.0, 0.0, 0.5)[block[0]]]), [0.5875, 0.1875, 0.225], atol=1e-9)
    np.testing.assert_allclose(first(lambda block, _: [0.5]), SECOND_TARGET, atol=1e-9)


@pytest.mark.pitfall(6)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_prefix_measurability_in_the_engine(data: st.DataObject) -> None:
    """Tokens at or after slot k never change whether slot k is verified, through all of the engine."""
    size, requests = 3, 2
    token = st.integers(0, 2)
    block = st.lists(token, min_size=size, max_size=size)
    drafts = [tuple(data.draw(block)) for _ in range(requests)]
    r, k = data.draw(st.integers(0, requests - 1)), data.draw(st.integers(0, size - 1))
    changed = list(drafts)
    changed[r] = (*drafts[r][:k], *data.draw(st.lists(token, min_size=size - k, max_size=size - k)))
    levels = np.random.default_rng(data.draw(st.integers(0, 99))).choice([0.1, 0.5, 0.8, 0.95, 1.0], 3**size)

    def state(drawn: Block, request: int) -> list[float]:
        """Any function of the tokens before a slot."""
        return [
            float(levels[(request + sum((t + 1) * 5**i for i, t in enumerate(drawn[:j]))) % len(levels)])
            for j in range(size)
        ]

    curve = CURVES[data.draw(st.sampled_from(["flat", "cliffs", "counter-example for two"]))]
    kind = data.draw(st.sampled_from([EarlyStop, PastCapacity]))
    plans = []
    for blocks in (drafts, changed):
        drafter = Scripted(size, state)
        core = warmed(kind(curve, block_size=size, num_slots=requests), drafter, requests, STEPS)
        plans.append(min(verified(core, drafter, blocks)[r], k + 1))
    assert plans[0] == plans[1]
