"""Packed = alone: ragged steps over shuffled pages give what the model gives for each text by itself."""

from __future__ import annotations

import random

import pytest
import torch

from dspark.target import pack_model
from dspark.target.lean import LeanBody

from .families import CONFIGS, tiny_model
from .traces import random_texts, run_ragged

PAGE = 8
TAPS = (1, -1, 3, 0)


def alone(model, ids: list[int]) -> dict[str, torch.Tensor]:
    """What transformers computes for one text with eager attention, taps by hooks of its own."""
    captured: dict[int, torch.Tensor] = {}
    layers = model.base_model.layers
    handles = [
        layer.register_forward_hook(
            lambda _m, _a, out, i=i: captured.__setitem__(i, out[0] if isinstance(out, tuple) else out)
        )
        for i, layer in enumerate(layers)
    ]
    handles.append(layers[0].register_forward_pre_hook(lambda _m, args: captured.__setitem__(-1, args[0])))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        hidden = model.base_model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    for handle in handles:
        handle.remove()
    return {"logits": logits, "features": torch.cat([captured[i][0] for i in TAPS], -1), "hidden": hidden}


@pytest.mark.parametrize("lean", [True, False], ids=["lean", "seam"])
@pytest.mark.parametrize("family", CONFIGS)
def test_ragged_steps_equal_each_text_alone(family: str, lean: bool) -> None:
    rng = random.Random(5)
    lengths = [3, 41, 26, 1, 33, 17]
    model = tiny_model(family)
    texts = random_texts(lengths, model.config.vocab_size, PAGE, rng)
    expected = [alone(model, text.ids) for text in texts]
    target = pack_model(model, page_size=PAGE, lean=lean)
    assert isinstance(target._body, LeanBody) == lean
    target.allocate(sum(len(text.pages) for text in texts))
    target.set_taps(TAPS)
    run_ragged(target, texts, rng)
    for text, reference in zip(texts, expected, strict=True):
        for name, values in reference.items():
            torch.testing.assert_close(torch.cat(text.rows[name]), values, atol=1e-5, rtol=1e-5)
