from __future__ import annotations

import numpy as np
import pytest
import torch

from dspark.training.metrics import acceptance, round_starts


def test_tau_and_conditional_acceptance_of_a_worked_example() -> None:
    rates = torch.tensor([[0.5, 0.5, 0.9], [1.0, 0.0, 1.0], [0.3, 0.3, 0.3]])
    mask = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
    estimate = acceptance(rates, mask)
    assert estimate.blocks == 2
    assert estimate.tau == pytest.approx(1 + (0.5 + 0.25 + 1.0) / 2)
    assert estimate.conditional == pytest.approx((0.75, 0.25 / 1.5, 0.0))


def test_rounds_start_where_the_engine_starts_them() -> None:
    """Greedily there is one walk: commit what is hit and one more, begin again behind it; a gap begins a new answer."""
    hits = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 0.0]])
    positions = np.array([4, 5, 6, 7, 20, 21])
    starts = round_starts(hits, torch.ones(6, 3, dtype=torch.bool), positions)
    assert starts.tolist() == [1, 0, 0, 1, 1, 1]
    estimate = acceptance(hits, torch.ones(6, 3, dtype=torch.bool), starts)
    assert estimate.tau == pytest.approx((3 + 4 + 1 + 1) / 4)


def test_starts_of_sampled_rounds_by_simulation() -> None:
    generator = np.random.default_rng(0)
    rates = torch.from_numpy(generator.uniform(0.1, 0.9, (12, 3)))
    visits = np.zeros(12)
    for _ in range(4000):
        at = 0
        while at < 12:
            visits[at] += 1
            drawn = generator.random(3) < rates[at].numpy()
            at += 1 + int(np.cumprod(drawn).sum())
    starts = round_starts(rates, torch.ones(12, 3, dtype=torch.bool), np.arange(5, 17))
    assert starts.numpy() == pytest.approx(visits / 4000, abs=0.04)
