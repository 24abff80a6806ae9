"""Policies on simulated numbers: never far below plain decoding or the best fixed length, whatever the drafter does."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.scheduling import ChooserOptions, EarlyStop, ExplorationOptions, FixedLength, PastCapacity

from .worlds import World, model

BLOCK, STEPS = 7, 300
WIDTHS, MS = (1, 8, 16, 32, 64, 128, 256), (17, 20, 25, 34, 52, 84, 160)
COSTS = model(
    [1e-3 * float(np.interp(rows, WIDTHS, MS)) for rows in range(1, 257)], [0.006 + 0.0004 * n for n in range(1, 33)]
)


def honest(truth: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return truth


def boastful(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random head that is mostly sure of itself, whatever is true."""
    return rng.beta(5, 1, truth.shape)


def always(chance: float, requests: int):
    return lambda step: np.full((requests, BLOCK), chance)


def mixed(requests: int):
    """Easy and hard requests, rounds that differ."""

    def accept(step: int) -> np.ndarray:
        rng = np.random.default_rng((requests, step))
        level = np.linspace(0.35, 0.95, requests) if requests > 1 else np.array([0.8])
        return np.clip(level[:, None] + rng.normal(0, 0.15, (requests, BLOCK)), 0.02, 0.98)

    return accept


def policy(kind: type, requests: int, **options):
    return kind(COSTS, block_size=BLOCK, num_slots=requests, options=ChooserOptions(**options))


@pytest.mark.pitfall(29)
@pytest.mark.parametrize("state", [honest, boastful])
@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
@pytest.mark.parametrize(("requests", "lifetime"), [(1, None), (1, 12), (8, None), (8, 12)])
def test_a_drafter_that_is_never_right(kind: type, requests: int, lifetime: int | None, state) -> None:
    """Drafting stops within a few rounds, also for requests that come later, and what is lost stays small."""
    world = World(COSTS, requests, BLOCK, always(0.0, requests), state).run(policy(kind, requests), STEPS, lifetime)
    plain = World(COSTS, requests, BLOCK, always(0.0, requests), state).run(FixedLength(0), STEPS, lifetime)
    assert world.drafted[0] > 0
    assert sum(drafted > 0 for drafted in world.drafted[:40]) <= 15
    assert sum(world.drafted[60:]) / (STEPS - 60) < 0.1  # probes alone
    assert world.rate() > 0.97 * plain.rate()
    assert world.rate(60) > 0.99 * plain.rate(60)


@pytest.mark.pitfall(29)
def test_without_exploration_nothing_is_ever_tried_again() -> None:
    shy = policy(PastCapacity, 1, exploration=ExplorationOptions(share=0.0))
    world = World(COSTS, 1, BLOCK, always(0.0, 1), honest).run(shy, 300)
    assert sum(world.drafted[30:]) == 0


@pytest.mark.pitfall(29)
@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
def test_notices_when_drafting_starts_to_pay(kind: type) -> None:
    world = World(COSTS, 2, BLOCK, lambda step: np.full((2, BLOCK), 0.0 if step < 200 else 0.9), honest)
    world.run(policy(kind, 2), 900)
    assert np.mean(np.array(world.drafted[100:200]) > 0) < 0.1
    assert np.mean(np.array(world.drafted[700:]) > 0) > 0.9
    best = World(COSTS, 2, BLOCK, always(0.9, 2), honest).run(FixedLength(), 200)
    assert world.rate(700) > 0.95 * best.rate()


@pytest.mark.pitfall(29)
@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
@pytest.mark.parametrize("requests", [1, 4, 16])
def test_about_the_best_fixed_length_at_every_load(kind: type, requests: int) -> None:
    """Plain decoding is one of the fixed lengths."""
    rates = {
        k: World(COSTS, requests, BLOCK, mixed(requests), honest).run(FixedLength(k), STEPS).rate(60)
        for k in (0, 2, 4, 7)
    }
    world = World(COSTS, requests, BLOCK, mixed(requests), honest).run(policy(kind, requests), STEPS)
    assert world.rate(60) > 0.97 * max(rates.values())


def test_less_is_verified_under_load() -> None:
    """Mean verify length falls as concurrency grows."""
    lengths = []
    for requests in (1, 4, 8, 32):
        world = World(COSTS, requests, BLOCK, mixed(requests), honest).run(policy(PastCapacity, requests), 150)
        lengths.append(float(np.mean(world.verified[30:])) / requests)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 3 * lengths[-1] + 1


def test_only_requests_that_are_worth_it_draft() -> None:
    """In one batch, one request whose drafts are always right and three whose drafts never are."""
    chances = np.array([0.97, 0.0, 0.0, 0.0])[:, None] * np.ones(BLOCK)
    chosen = policy(PastCapacity, 4)
    World(COSTS, 4, BLOCK, lambda _: chances, honest).run(chosen, 200)
    drafts = chosen._drafts
    assert drafts.lengths[0] > 0
    assert (drafts.lengths[1:] * (drafts.forced[1:] == 0)).sum() == 0


@pytest.mark.pitfall(30)
def test_acceptance_does_not_depend_on_the_policy_or_the_batch() -> None:
    """How often a first draft is accepted is the drafter's affair alone."""
    shares = []
    for requests in (1, 8):
        world = World(COSTS, requests, BLOCK, always(0.6, requests), honest).run(FixedLength(1), 1600 // requests)
        shares.append((sum(world.tokens) - requests * len(world.tokens)) / sum(world.verified))
    assert shares == pytest.approx([0.6, 0.6], abs=0.05)
