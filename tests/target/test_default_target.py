"""The default target, read from its package: greedy text equals that of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark.core import InputError
from dspark.target import LoadedTarget, load_target
from dspark.target.lean import LeanBody
from dspark.target.sources import default_gguf

from .traces import Text, run

NEW_TOKENS = 40
PROMPT = "List three colours of the rainbow and one fruit for each."

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def loaded() -> LoadedTarget:
    try:
        default_gguf()
    except InputError as missing:
        pytest.skip(str(missing))
    return load_target(dtype="float32", device="cpu")


def prompt_ids(loaded: LoadedTarget) -> list[int]:
    messages = [{"role": "user", "content": PROMPT}]
    text = loaded.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return loaded.tokenizer(text, add_special_tokens=False)["input_ids"]


def reference(loaded: LoadedTarget, ids: list[int]) -> list[int]:
    model = AutoModelForCausalLM.from_pretrained(loaded.source, dtype=torch.float32)
    output = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False)
    return output[0, len(ids) :].tolist()


def test_it_is_what_it_should_be(loaded: LoadedTarget) -> None:
    facts = loaded.target.facts
    assert (facts.model_type, facts.num_layers, facts.vocab_size) == ("llama", 30, 49152)
    assert loaded.name == "smollm2-135m"
    assert isinstance(loaded.target._body, LeanBody)
    assert 134e6 < facts.num_parameters < 135e6


def test_greedy_text_equals_that_of_transformers(loaded: LoadedTarget) -> None:
    ids = prompt_ids(loaded)
    expected = reference(loaded, ids)
    target = loaded.target
    target.allocate(8)
    text = Text(ids=list(ids), pages=[6, 1, 4, 0, 3])
    run(target, [(text, len(ids) // 2)])
    run(target, [(text, len(ids) - text.done)])
    for _ in range(NEW_TOKENS):
        text.ids.append(int(text.rows["logits"][-1][-1].argmax()))
        run(target, [(text, 1)])
    assert text.ids[len(ids) : len(ids) + len(expected)] == expected


def test_blocks_of_the_text_verify_completely(loaded: LoadedTarget) -> None:
    ids = prompt_ids(loaded)
    whole = ids + reference(loaded, ids)
    target = loaded.target
    target.allocate(8)
    text, other = Text(ids=whole, pages=[5, 0, 7, 2]), Text(ids=whole[:30], pages=[3])
    run(target, [(text, len(ids) - 1), (other, 10)])
    while text.done < len(whole):
        size = min(8, len(whole) - text.done)
        run(target, [(text, size), (other, 1)])
    choices = torch.cat(text.rows["logits"])[len(ids) - 1 : -1].argmax(-1)
    assert choices.tolist() == whole[len(ids) :]
