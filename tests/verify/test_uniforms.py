"""The random numbers of rounds: uniform, independent of each other, and bound to seed, round and purpose only."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dspark.verify import ACCEPT, DRAFT, EMIT, RoundUniforms

COUNT = 40_000


def kolmogorov(sample: np.ndarray) -> float:
    """sqrt(n) times the distance from uniform; above 2.2 once in 16000 times."""
    ordered = np.sort(sample.ravel())
    count = len(ordered)
    steps = np.arange(1, count + 1) / count
    return float(np.sqrt(count) * max(np.abs(steps - ordered).max(), np.abs(steps - 1 / count - ordered).max()))


def dependence(a: np.ndarray, b: np.ndarray) -> float:
    """Chi-square of a 8 x 8 table over its 63 degrees of freedom; above 2 less than once in 100000 times."""
    table = np.histogram2d(a.ravel(), b.ravel(), bins=8, range=[[0, 1], [0, 1]])[0]
    mean = a.size / 64
    return float(((table - mean) ** 2 / mean).sum() / 63)


SETS = {
    "seeds in a row": (np.arange(COUNT), np.zeros(COUNT, int)),
    "rounds in a row": (np.full(COUNT, 12345), np.arange(COUNT)),
    "seed and round together": (np.arange(COUNT), np.arange(COUNT)),
    "far seeds": (np.arange(COUNT) << 40, np.zeros(COUNT, int)),
}


@pytest.mark.parametrize("name", SETS)
def test_uniform(name: str) -> None:
    numbers = RoundUniforms.of(*SETS[name], 4)
    for part in (numbers.draft, numbers.accept, numbers.emit):
        assert part.min() >= 0.0
        assert part.max() < 1.0
        for column in part.reshape(COUNT, -1).T:
            assert kolmogorov(column) < 2.2


@pytest.mark.parametrize("name", SETS)
def test_independent_across_purposes_slots_and_neighbours(name: str) -> None:
    numbers = RoundUniforms.of(*SETS[name], 4)
    columns = [*numbers.draft.T, *numbers.accept.T, numbers.emit]
    for a, b in combinations(columns, 2):
        assert dependence(a, b) < 2.0
    for column in columns:
        assert dependence(column[1:], column[:-1]) < 2.0


def test_streams_are_distinct() -> None:
    assert len({DRAFT, ACCEPT, EMIT}) == 3


@pytest.mark.pitfall(19)
def test_numbers_belong_to_a_request_alone() -> None:
    """Neither the batch nor the block length changes the number of a slot."""
    seeds, rounds = [5, 2**70 + 1, 7], [0, 9, 2]
    many, one = RoundUniforms.of(seeds, rounds, 7), RoundUniforms.of(seeds[1:2], rounds[1:2], 2)
    np.testing.assert_array_equal(many.draft[1, :2], one.draft[0])
    np.testing.assert_array_equal(many.accept[1, :2], one.accept[0])
    assert many.emit[1] == one.emit[0]


def test_no_number_comes_back_in_a_later_round() -> None:
    numbers = RoundUniforms.of(np.full(COUNT, 3), np.arange(COUNT), 7)
    everything = np.concatenate([numbers.draft.ravel(), numbers.accept.ravel(), numbers.emit])
    assert len(np.unique(everything)) == everything.size
