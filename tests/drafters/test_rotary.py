"""Rotary positions: float32 frequencies whatever the model computes in, and no half-read rotary options."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.dspark import DSparkConfig, DSparkModel
from dspark.drafters.dspark.backbone import Rotary
from dspark.drafters.dspark.rotary_table import RotaryTable

from .standin import config_of, random_model

FAR = 30_000
POSITIONS = torch.tensor([0, 1, 257, 4_095, FAR - 1])
CPU = torch.device("cpu")


def exact(theta: float, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [positions, size] in float64 from float32 frequencies, as Hugging Face keeps them."""
    frequencies = (theta ** -(torch.arange(0, size, 2).float() / size)).double()
    angles = (POSITIONS.double()[:, None] * frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def model_in(dtype: torch.dtype) -> DSparkModel:
    return DSparkModel(config_of(head_dim=16, rope_theta=1e6)).to(dtype)


@pytest.mark.pitfall(39)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_tables_keep_float32_frequencies(dtype: torch.dtype, autocast: bool) -> None:
    """A model cast to bfloat16, or run under autocast, still turns by exact angles; only the result is rounded.

    At position 30,000 a frequency rounded to bfloat16 would be off by many radians.
    """
    model = model_in(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        got = model.rotary.tables(POSITIONS, dtype)
    for table, expected in zip(got, exact(1e6, 16), strict=True):
        error = (table[:, 0].double() - expected).abs().max()
        assert error <= (2e-3 if dtype is torch.float32 else 6e-3)
    assert not list(model.rotary.buffers()), "a buffer would be rounded with the model"
    assert not list(model.rotary.parameters())


@pytest.mark.pitfall(39)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_serving_tables_are_those_of_training(dtype: torch.dtype) -> None:
    config = config_of(head_dim=16, rope_theta=1e6)
    rows = RotaryTable(config, FAR, dtype, CPU).at(POSITIONS)
    x = torch.randn(len(POSITIONS), 3, 16, dtype=dtype)
    trained = Rotary.rotate(x, Rotary(config).tables(POSITIONS, dtype))
    tolerance = 1e-6 if dtype is torch.float32 else 0.04
    torch.testing.assert_close(rows.rotate(x), trained, atol=tolerance, rtol=0)


@pytest.mark.pitfall(39)
def test_scores_depend_on_distance_alone_far_into_a_text() -> None:
    """bfloat16 serving: the same pair of rows, 30,000 positions later, has the same score up to rounding."""
    config = config_of(head_dim=16, rope_theta=1e6)
    table = RotaryTable(config, FAR, torch.bfloat16, CPU)
    query, key = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    scores = []
    for start in (10, FAR - 20):
        turned = (table.at(torch.tensor([start + 9])).rotate(query), table.at(torch.tensor([start])).rotate(key))
        scores.append(float((turned[0].float() * turned[1].float()).sum()))
    assert math.isclose(*scores, abs_tol=0.05)


@pytest.mark.pitfall(39)
@pytest.mark.parametrize("where", ["top", "rope_parameters", "rope_scaling"])
def test_partial_rotary_is_refused(where: str) -> None:
    """A factor below one must not be read as a full rotation."""
    raw = config_of().to_dict()
    if where == "top":
        raw["partial_rotary_factor"] = 0.5
    elif where == "rope_scaling":
        del raw["rope_parameters"]
        raw["rope_scaling"] = {"rope_type": "default", "partial_rotary_factor": 0.5}
    else:
        raw["rope_parameters"] |= {"partial_rotary_factor": 0.5}
    with pytest.raises(InputError, match="partial_rotary_factor must be 1"):
        DSparkConfig.from_dict(raw)


@pytest.mark.pitfall(39)
def test_rotary_of_the_golden_family_is_the_full_head() -> None:
    """Every pair of head entries turns: half a head left alone would pass many tests that look at position 0."""
    model = random_model(config_of(head_dim=8))
    x = torch.ones(1, 1, 8)
    turned = Rotary.rotate(x, model.rotary.tables(torch.tensor([5]), torch.float32))
    assert ((turned - x).abs() > 1e-4).all()
