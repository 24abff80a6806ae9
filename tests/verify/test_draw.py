"""Draws: the inverse of the cumulative weights, and never a token of weight zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.verify import draw

NEARLY_ONE = 1.0 - 2.0**-53


@pytest.mark.parametrize("vocab", [1, 5, 255, 256, 257, 1000, 49152])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inverse_of_the_cumulative_weights(vocab: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(vocab)
    weights = rng.random((64, vocab)) ** 6 * (rng.random((64, vocab)) < 0.3)
    weights[:, vocab // 2] += 0.1
    table = torch.from_numpy(weights).to(dtype)
    uniforms = rng.random(64)
    tokens = draw(table, uniforms).numpy()
    ends = np.cumsum(table.double().numpy(), 1)
    goal = uniforms * ends[:, -1]
    rows = np.arange(64)
    slack = 1e-6 * ends[:, -1]
    assert (ends[rows, tokens] > goal - slack).all()
    assert (ends[rows, tokens] - weights[rows, tokens] < goal + slack).all()
    assert (weights[rows, tokens] > 0).all()


@settings(max_examples=200, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.0, 1e-45, 1e-38, 1e-10, 1e-7, 0.1, 1.0, 3e4]), min_size=1, max_size=700),
    point=st.sampled_from([0.0, 5e-324, 2.0**-53, 0.25, 0.5, 0.75, 1 - 2.0**-24, 1 - 2.0**-52, NEARLY_ONE]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_weight_zero_is_never_drawn(weights: list[float], point: float, dtype: torch.dtype) -> None:
    table = torch.tensor([weights], dtype=dtype)
    if bool((table > 0).any()):
        (token,) = draw(table, np.array([point])).tolist()
        assert table[0, token] > 0


def test_a_grid_of_uniforms_gives_the_law() -> None:
    law = np.random.default_rng(4).dirichlet(np.full(700, 0.05))
    count = 20_000
    grid = (np.arange(count) + 0.5) / count
    tokens = draw(torch.from_numpy(law)[None].expand(count, -1), grid).numpy()
    assert (np.diff(tokens) >= 0).all()
    found = np.bincount(tokens, minlength=700)
    assert np.abs(found - count * law).max() <= 1.0 + 1e-6


def test_weights_need_no_common_scale() -> None:
    weights = torch.tensor([[0.0, 1.0, 3.0, 0.0]])
    points = np.array([0.0, 0.2, 0.3, 0.9])
    for scale in (1e-20, 1.0, 1e20):
        assert draw((weights * scale).expand(4, -1), points).tolist() == [1, 1, 2, 2]
