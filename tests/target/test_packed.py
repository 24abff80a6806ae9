"""The packed target's contract: rows, taps, isolation of pages, golden numbers."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from dspark.core import InputError
from dspark.target import PackedTarget, pack_model

from .families import tiny_model
from .traces import Text, pack, random_texts, run

GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = 8


def target_of(family: str, num_pages: int) -> PackedTarget:
    target = pack_model(tiny_model(family), page_size=PAGE)
    target.allocate(num_pages)
    return target


def test_only_logit_rows_are_computed() -> None:
    target = target_of("gemma2", 4)
    (text,) = random_texts([20], 97, PAGE, random.Random(0))
    batch = pack([(text, 20)], PAGE)
    whole = target.forward(batch)
    some = target.forward(replace(batch, logit_rows=torch.tensor([3, 19])))
    assert some.logits.shape == (2, 97)
    torch.testing.assert_close(some.logits, whole.logits[[3, 19]])
    assert some.features is None
    assert some.last_hidden is None


def test_head_and_embedding_are_the_models_own() -> None:
    model = tiny_model("gemma2")
    ids = torch.tensor([4, 9])
    with torch.no_grad():
        embedded = model.get_input_embeddings()(ids)
        hidden = model.base_model(input_ids=ids[None]).last_hidden_state[0]
        logits = model(input_ids=ids[None]).logits[0]
    target = pack_model(model, page_size=PAGE)
    torch.testing.assert_close(target.embed(ids), embedded)
    torch.testing.assert_close(target.lm_head(hidden), logits)
    assert target.lm_head_weight().shape == target.embed_weight().shape == (97, 48)
    assert not torch.allclose(target.embed_weight()[ids], embedded), "gemma scales its embeddings"


def test_facts_tell_the_family_apart() -> None:
    gemma = pack_model(tiny_model("gemma2"), page_size=PAGE).facts
    assert gemma.windows == (7, None, 7, None)
    assert (gemma.attn_softcap, gemma.logit_softcap) == (2.0, 3.0)
    phi = pack_model(tiny_model("phi3"), page_size=PAGE).facts
    assert phi.windows == (9,) * 4
    assert phi.eos_token_ids == {2}
    assert pack_model(tiny_model("smollm3"), page_size=PAGE).facts.windows == (None,) * 4


def test_sizes_in_bytes() -> None:
    target = target_of("llama", 3)
    assert target.kv_bytes_per_page() == 2 * 4 * 2 * 8 * PAGE * 4
    parameters = sum(parameter.numel() for parameter in tiny_model("llama").parameters())
    assert target.weight_bytes() == parameters * 4


@pytest.mark.parametrize("ids", [(4,), (-2,), (1, 1)])
def test_bad_taps_are_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="different ids from -1 to 3"):
        target_of("llama", 1).set_taps(ids)


def test_taps_can_be_changed_and_removed() -> None:
    target = target_of("llama", 1)
    (text,) = random_texts([4], 97, PAGE, random.Random(0))
    batch = pack([(text, 4)], PAGE)
    target.set_taps((0, 2))
    both = target.forward(batch).features
    target.set_taps((2,))
    assert both is not None
    torch.testing.assert_close(target.forward(batch).features, both[:, 48:])
    target.set_taps(())
    assert target.forward(batch).features is None


@pytest.mark.pitfall(24)
@pytest.mark.parametrize("length", [7, 8, 9, 15, 16, 17])
def test_canaries_in_neighbouring_pages_are_neither_read_nor_written(length: int) -> None:
    target = target_of("llama", 9)
    rng = random.Random(length)
    (clean,) = random_texts([length], 97, PAGE, rng)
    run(target, [(clean, length - 1)])
    run(target, [(clean, 1)])
    guarded = Text(ids=clean.ids, pages=[5, 2, 7][: len(clean.pages)])
    pool = target._backend._pool  # type: ignore[attr-defined]
    pool.fill_(float("nan"))
    neighbour = Text(ids=clean.ids[:3], pages=[6])
    run(target, [(guarded, length - 1), (neighbour, 2)])
    run(target, [(neighbour, 1), (guarded, 1)])
    torch.testing.assert_close(torch.cat(guarded.rows["logits"]), torch.cat(clean.rows["logits"]), atol=1e-5, rtol=1e-5)
    others = [page for page in range(9) if page not in (*guarded.pages, *neighbour.pages)]
    assert pool[:, :, :, others].isnan().all()
    slots = pool[:, :, :, guarded.pages].flatten(3, 4)
    assert not slots.isnan().any()
    assert (slots[:, :, :, length:] == 0).all(), "nothing is written past the last token"


def test_inference_mode_may_come_and_go() -> None:
    target = pack_model(tiny_model("llama"), page_size=PAGE)
    (text,) = random_texts([20], 97, PAGE, random.Random(0))
    target.set_taps((1,))
    with torch.inference_mode():
        target.allocate(3)
        run(target, [(text, 9)])
    output = run(target, [(text, 8)])
    with torch.inference_mode():
        run(target, [(text, 3)])
    assert output.features is not None
    weight = torch.ones(48, requires_grad=True)
    (output.features @ weight).sum().backward()
    assert weight.grad is not None, "features of an ordinary call can be trained on"


def test_golden_target() -> None:
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "target", dtype=torch.float32)
    io = load_file(GOLDEN / "target" / "io.safetensors")
    layers = model.config.num_hidden_layers
    meta = json.loads((GOLDEN / "meta.json").read_text())
    target = pack_model(model, page_size=PAGE)
    target.allocate(8)
    target.set_taps((-1, *range(layers)))
    ids = io["input_ids"].tolist()
    text = Text(ids=ids, pages=[3, 0])
    run(target, [(text, 5)])
    run(target, [(text, len(ids) - 5)])
    features = torch.cat(text.rows["features"]).unflatten(-1, (layers + 1, -1))
    torch.testing.assert_close(features[:, 0], io["embed_out"], atol=1e-6, rtol=0)
    for layer in range(layers):
        torch.testing.assert_close(features[:, layer + 1], io[f"layer_out.{layer}"], atol=2e-4, rtol=0)
    tapped = [layer + 1 for layer in meta["dims"]["target_layer_ids"]]
    torch.testing.assert_close(features[:, tapped].flatten(1), io["features"], atol=2e-4, rtol=0)
    torch.testing.assert_close(torch.cat(text.rows["hidden"]), io["last_hidden"], atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cat(text.rows["logits"]), io["logits"], atol=1e-4, rtol=0)


@pytest.mark.pitfall(40)
def test_golden_batch() -> None:
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "target", dtype=torch.float32)
    io = load_file(GOLDEN / "target" / "io.safetensors")
    lengths = io["batch.attention_mask"].sum(-1).tolist()
    target = pack_model(model, page_size=PAGE)
    target.allocate(8)
    target.set_taps(json.loads((GOLDEN / "meta.json").read_text())["dims"]["target_layer_ids"])
    texts = [Text(ids=io["batch.input_ids"][i, :length].tolist(), pages=[i, i + 4]) for i, length in enumerate(lengths)]
    run(target, [(text, len(text.ids)) for text in texts])
    for i, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        torch.testing.assert_close(text.rows["features"][0], io["batch.features"][i, :length], atol=2e-4, rtol=0)
        torch.testing.assert_close(text.rows["hidden"][0], io["batch.last_hidden"][i, :length], atol=1e-4, rtol=0)
