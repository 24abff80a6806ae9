"""Packed = alone: ragged steps over shuffled pages give what the model gives for each text by itself."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from dspark.target import PackedTarget, pack_model
from dspark.target.backends.tiles import TileLimits
from dspark.target.lean import LeanBody

from .families import CONFIGS, tiny_model
from .traces import Text, random_texts, run, run_ragged

PAGE = 8
TAPS = (1, -1, 3, 0)
SMALL = TileLimits(piece_rows=5, tile_pages=7, tile_scores=60, spare_pages=1)


def alone(model: PreTrainedModel, ids: list[int]) -> dict[str, Tensor]:
    """What transformers computes for one text with eager attention, taps by hooks of its own."""
    captured: dict[int, Tensor] = {}

    def keep(place: int, value: Tensor | tuple[Tensor, ...]) -> None:
        captured[place] = value[0] if isinstance(value, tuple) else value

    layers = model.base_model.layers
    handles = [layer.register_forward_hook(lambda _m, _a, out, i=i: keep(i, out)) for i, layer in enumerate(layers)]
    handles.append(layers[0].register_forward_pre_hook(lambda _m, args: keep(-1, args[0])))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        hidden = model.base_model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    for handle in handles:
        handle.remove()
    return {"logits": logits, "features": torch.cat([captured[i][0] for i in TAPS], -1), "hidden": hidden}


def packed(model: PreTrainedModel, num_pages: int, *, lean: bool = True) -> PackedTarget:
    target = pack_model(model, page_size=PAGE, lean=lean)
    assert isinstance(target._body, LeanBody) == lean
    target.allocate(num_pages)
    target.set_taps(TAPS)
    return target


def pages(texts: list[Text]) -> int:
    return sum(len(text.pages) for text in texts)


def assert_same(texts: list[Text], expected: list[dict[str, Tensor]]) -> None:
    for text, reference in zip(texts, expected, strict=True):
        for name, values in reference.items():
            torch.testing.assert_close(torch.cat(text.rows[name]), values, atol=1e-5, rtol=1e-5)


@pytest.mark.pitfall(8)
@pytest.mark.parametrize("lean", [True, False], ids=["lean", "seam"])
@pytest.mark.parametrize("family", CONFIGS)
def test_ragged_steps_equal_each_text_alone(family: str, lean: bool) -> None:
    rng = random.Random(5)
    model = tiny_model(family)
    texts = random_texts([3, 41, 26, 1, 33, 17], model.config.vocab_size, PAGE, rng)
    expected = [alone(model, text.ids) for text in texts]
    run_ragged(packed(model, pages(texts), lean=lean), texts, rng)
    assert_same(texts, expected)


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen2"])
@pytest.mark.parametrize("seed", range(3))
def test_cutting_into_many_pieces_and_tiles_changes_nothing(family: str, seed: int) -> None:
    rng = random.Random(seed)
    model = tiny_model(family, seed)
    texts = random_texts([60, 45, 9, 30, 2, 51, 22], model.config.vocab_size, PAGE, rng)
    expected = [alone(model, text.ids) for text in texts]
    target = packed(model, pages(texts))
    target._backend._limits = SMALL
    run_ragged(target, texts, rng, longest=40)
    assert_same(texts, expected)


@pytest.mark.pitfall(7)
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mistral"])
def test_a_token_decoded_alone_and_verified_in_a_block_has_the_same_logits(family: str) -> None:
    rng = random.Random(1)
    model = tiny_model(family)
    one, block = random_texts([40], 97, PAGE, rng), random_texts([40], 97, PAGE, rng)
    block[0].ids = list(one[0].ids)
    target = packed(model, 5)
    run(target, [(one[0], 20)])
    for _ in range(20):
        run(target, [(one[0], 1)])
    run(target, [(block[0], 20)])
    for size in (8, 1, 8, 3):
        run(target, [(block[0], size)])
    for name in one[0].rows:
        torch.testing.assert_close(torch.cat(block[0].rows[name]), torch.cat(one[0].rows[name]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_rejected_rows_leave_no_trace_once_overwritten(family: str) -> None:
    rng = random.Random(2)
    model = tiny_model(family)
    (text,) = random_texts([30], 97, PAGE, rng)
    expected = [alone(model, text.ids)]
    target = packed(model, len(text.pages))
    run(target, [(text, 13)])
    kept = {name: list(rows) for name, rows in text.rows.items()}
    right, text.ids = text.ids, [*text.ids[:13], 5, 4, 3, 5, 4, 3, 5, *text.ids[20:]]
    run(target, [(text, 7)])
    text.ids, text.done, text.rows = right, 13, kept
    run(target, [(text, 1)])
    run(target, [(text, 16)])
    assert_same([text], expected)


@pytest.mark.pitfall(40)
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "phi3"])
def test_features_and_hidden_states_of_a_batch_of_eight_equal_those_of_one(family: str) -> None:
    rng = random.Random(3)
    model = tiny_model(family)
    texts = random_texts([5, 19, 8, 33, 16, 2, 27, 11], 97, PAGE, rng)
    target = packed(model, pages(texts))
    run(target, [(text, len(text.ids)) for text in texts])
    together = [{name: torch.cat(rows) for name, rows in text.rows.items()} for text in texts]
    for text, expected in zip(texts, together, strict=True):
        text.done, text.rows = 0, {name: [] for name in text.rows}
        run(target, [(text, len(text.ids))])
        assert_same([text], [expected])


def test_bfloat16_stays_close_to_float32() -> None:
    rng = random.Random(4)
    texts = random_texts([40, 22, 9], 97, PAGE, rng)
    expected = [alone(tiny_model("llama"), text.ids) for text in texts]
    target = packed(tiny_model("llama").to(torch.bfloat16), pages(texts))
    run_ragged(target, texts, rng)
    for text, reference in zip(texts, expected, strict=True):
        got = torch.cat(text.rows["logits"]).float()
        assert (got - reference["logits"]).norm() <= 0.03 * reference["logits"].norm()
