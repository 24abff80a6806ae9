from __future__ import annotations

import pytest
import torch

from dspark.training.metrics import acceptance


def test_tau_and_conditional_acceptance_of_a_worked_example() -> None:
    rates = torch.tensor([[0.5, 0.5, 0.9], [1.0, 0.0, 1.0], [0.3, 0.3, 0.3]])
    mask = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
    estimate = acceptance(rates, mask)
    assert estimate.blocks == 2
    assert estimate.tau == pytest.approx(1 + (0.5 + 0.25 + 1.0) / 2)
    assert estimate.conditional == pytest.approx((0.75, 0.25 / 1.5, 0.0))
