"""Feature layers named in two ways are the same hidden states."""

from __future__ import annotations

import random

import pytest
import torch

from dspark.core import InputError
from dspark.target import pack_model
from dspark.target.layer_ids import LayerIds, convert_layer_ids

from .families import tiny_model
from .traces import pack, random_texts

LAYERS = 4


@pytest.mark.pitfall(35)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_ids_of_transformers_name_the_tapped_states(family: str) -> None:
    model = tiny_model(family)
    (text,) = random_texts([9], 97, 8, random.Random(0))
    with torch.no_grad():
        states = model(input_ids=torch.tensor([text.ids]), output_hidden_states=True).hidden_states
    target = pack_model(model, page_size=8)
    target.allocate(2)
    batch = pack([(text, 9)], 8)
    taps = convert_layer_ids(range(LAYERS), LayerIds.INPUT_TO, LayerIds.OUTPUT_OF, LAYERS)
    assert taps == (-1, 0, 1, 2)
    target.set_taps(taps)
    features = target.forward(batch).features
    assert features is not None
    for index, feature in enumerate(features.chunk(LAYERS, dim=-1)):
        torch.testing.assert_close(feature, states[index][0], atol=1e-4, rtol=1e-4)
        if index:
            assert not torch.allclose(feature, states[index - 1][0], atol=1e-2)


@pytest.mark.pitfall(35)
def test_there_and_back() -> None:
    ours = (-1, 1, 8, 27)
    theirs = convert_layer_ids(ours, LayerIds.OUTPUT_OF, LayerIds.INPUT_TO, 30)
    assert theirs == (0, 2, 9, 28)
    assert convert_layer_ids(theirs, LayerIds.INPUT_TO, LayerIds.OUTPUT_OF, 30) == ours
    assert convert_layer_ids(ours, LayerIds.OUTPUT_OF, LayerIds.OUTPUT_OF, 30) == ours


@pytest.mark.parametrize(
    ("ids", "given", "words"),
    [
        ((1, 29), LayerIds.OUTPUT_OF, r"must be in \[-1, 28\] when they name the output of a layer, got \[29\]"),
        ((-1, 3), LayerIds.INPUT_TO, r"must be in \[0, 29\] when they name the input to a layer, got \[-1\]"),
        ((30,), LayerIds.INPUT_TO, r"got \[30\]"),
    ],
)
def test_ids_that_point_at_nothing(ids: tuple[int, ...], given: LayerIds, words: str) -> None:
    with pytest.raises(InputError, match=words):
        convert_layer_ids(ids, given, LayerIds.OUTPUT_OF, 30)
