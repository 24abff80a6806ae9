"""Temperature and filters, against a full sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.core import SamplingParams
from dspark.verify import RowSampling, warp

from .reference import warped


def warp_one(logits: np.ndarray | torch.Tensor, params: SamplingParams) -> np.ndarray:
    return warp(torch.as_tensor(logits)[None], RowSampling.of([params]))[0].numpy()


OPTIONS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.3, 0.7, 1.0, 1.5]),
        "top_k": st.sampled_from([0, 1, 2, 5, 70, 700]),
        "top_p": st.sampled_from([0.0517, 0.5031, 0.9013, 0.9907, 1.0]),
        "min_p": st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    }
)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocab=st.sampled_from([1, 2, 7, 129, 1000]),
    spread=st.sampled_from([0.0, 0.3, 2.0, 8.0]),
    coarse=st.booleans(),
    options=st.lists(OPTIONS, min_size=1, max_size=5),
)
def test_every_row_as_sorted_by_hand(seed: int, vocab: int, spread: float, coarse: bool, options: list[dict]) -> None:
    """Rows with different options in one call; coarse logits are full of ties."""
    params = [SamplingParams(**option) for option in options]
    logits = np.random.default_rng(seed).normal(size=(len(params), vocab)) * spread
    if coarse:
        logits = np.round(logits)
    found = warp(torch.from_numpy(logits), RowSampling.of(params)).numpy()
    for row, param, out in zip(logits, params, found, strict=True):
        np.testing.assert_allclose(out, warped(row, param), atol=1e-12)


@pytest.mark.parametrize("vocab", [5000, 49152])
@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
def test_wide_nuclei_in_long_rows(vocab: int, spread: float) -> None:
    logits = np.random.default_rng(3).normal(size=vocab) * spread
    for options in ({"top_p": 0.99}, {"top_k": 3000}, {"top_k": 2000, "top_p": 0.9, "min_p": 1e-3}, {"top_p": 0.1}):
        params = SamplingParams(**options)
        out = warp_one(logits, params)
        expected = warped(logits, params)
        assert (out > 0).sum() == (expected > 0).sum()
        np.testing.assert_allclose(out, expected, atol=1e-12)


@pytest.mark.parametrize("vocab", [8320, 8321, 12345, 50257])
def test_rows_that_do_not_divide_into_chunks(vocab: int) -> None:
    """The largest values sit anywhere, also in the odd end of a row."""
    logits = np.random.default_rng(vocab).normal(size=(3, vocab))
    logits[1, -3:] += 9.0
    params = [SamplingParams(top_k=40), SamplingParams(top_k=5, top_p=0.8), SamplingParams(temperature=0.3, top_p=0.2)]
    found = warp(torch.from_numpy(logits), RowSampling.of(params)).numpy()
    for row, param, out in zip(logits, params, found, strict=True):
        np.testing.assert_allclose(out, warped(row, param), atol=1e-12)


def test_single_precision_keeps_as_many_tokens_as_asked() -> None:
    """bfloat16 logits, hundreds of them equal at the cut."""
    logits = torch.randn(8, 49152, generator=torch.Generator().manual_seed(0)).mul(2).bfloat16()
    for count in (1, 50, 300, 5000):
        out = warp(logits, RowSampling.of([SamplingParams(top_k=count)] * 8))
        assert out.dtype == torch.float32
        assert (out > 0).sum(1).tolist() == [count] * 8
        assert out.sum(1).tolist() == pytest.approx([1.0] * 8, abs=1e-5)


def test_ties_go_to_the_smaller_id() -> None:
    logits = np.array([1.0, 3.0, 3.0, 0.0, 3.0, 3.0])
    assert warp_one(logits, SamplingParams(top_k=2)).nonzero()[0].tolist() == [1, 2]
    assert warp_one(logits, SamplingParams(top_p=0.7)).nonzero()[0].tolist() == [1, 2, 4]
    assert warp_one(logits, SamplingParams(min_p=1.0)).nonzero()[0].tolist() == [1, 2, 4, 5]
    assert warp_one(logits, SamplingParams(top_k=1, temperature=2.0)).nonzero()[0].tolist() == [1]


def test_a_row_is_the_same_alone_and_among_others() -> None:
    params = [SamplingParams(temperature=0.8), SamplingParams(top_p=0.9), SamplingParams(top_k=9, min_p=0.1)]
    logits = torch.randn(3, 3000, generator=torch.Generator().manual_seed(1)) * 3
    together = warp(logits, RowSampling.of(params))
    for r, param in enumerate(params):
        assert torch.equal(together[r], warp(logits[r : r + 1], RowSampling.of([param]))[0])


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-6, 1e-3, 1e6, 1e300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_temperatures(temperature: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[-50.0, 60.0, 30.0, -torch.inf]], dtype=dtype)
    out = warp(logits, RowSampling.of([SamplingParams(temperature=temperature)]))[0]
    if temperature < 1:
        assert out.tolist() == [0.0, 1.0, 0.0, 0.0]
    else:
        assert out.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-4)


def test_the_most_likely_token_is_never_dropped() -> None:
    for vocab in (3, 3000):
        logits = np.random.default_rng(0).normal(size=vocab)
        for options in ({"top_p": 1e-12}, {"min_p": 1.0}, {"top_k": 1}):
            assert warp_one(logits, SamplingParams(**options))[logits.argmax()] == pytest.approx(1.0)


def test_the_input_is_not_changed() -> None:
    logits = torch.randn(2, 50)
    before = logits.clone()
    warp(logits, RowSampling.of([SamplingParams(temperature=0.5, top_k=3, top_p=0.8, min_p=0.1)] * 2))
    assert torch.equal(logits, before)


def test_options_nobody_uses_have_no_columns() -> None:
    plain = RowSampling.of([SamplingParams(), SamplingParams(temperature=0.0, top_k=5)])
    assert (plain.temperature, plain.top_k, plain.top_p, plain.min_p) == (None,) * 4
    assert plain.greedy.tolist() == [False, True]
    assert RowSampling.of([SamplingParams(temperature=0.0)] * 2).greedy.all()
    mixed = RowSampling.of([SamplingParams(top_k=5), SamplingParams(min_p=0.1)]).take(np.array([1, 0, 1]))
    assert mixed.top_k is not None
    assert mixed.top_k.tolist() == [0, 5, 0]
    assert mixed.top_p is None
