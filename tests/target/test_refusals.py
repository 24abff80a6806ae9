"""Models that cannot run packed are refused at load, with one clear sentence; others are proven by a probe."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    GPT2Config,
    GptOssConfig,
    GraniteConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    PretrainedConfig,
    T5Config,
)

from dspark.core import InputError
from dspark.target import pack_model
from dspark.target.body import SeamBody
from dspark.target.facts import read_facts

from .families import SIZES, tiny_model


def model_of(config: PretrainedConfig) -> object:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


@pytest.mark.parametrize("config", [MixtralConfig(**SIZES, num_local_experts=4), Olmo2Config(**SIZES)])
def test_an_unproven_family_with_the_seam_passes_the_probe(config: PretrainedConfig) -> None:
    target = pack_model(model_of(config), page_size=16)
    assert isinstance(target._body, SeamBody)
    assert not target.facts.proven


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (GraniteConfig(**SIZES, logits_scaling=3.0), "other logits packed than alone"),
        (CohereConfig(**SIZES, logit_scale=0.5), "other logits packed than alone"),
        (GptOssConfig(**SIZES, head_dim=16, num_local_experts=4, sliding_window=8), "s_aux"),
        (GPT2Config(vocab_size=97, n_embd=48, n_layer=2, n_head=6), "has 0 decoder layers"),
    ],
    ids=["granite", "cohere", "gpt_oss", "gpt2"],
)
def test_models_whose_numbers_would_be_wrong_are_refused(config: PretrainedConfig, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        pack_model(model_of(config), page_size=16)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}), "'dynamic'"),
        (
            Phi3Config(
                **SIZES,
                rope_parameters={
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0] * 4,
                    "long_factor": [2.0] * 4,
                    "original_max_position_embeddings": 64,
                },
            ),
            "'longrope'",
        ),
        (T5Config(), "not a text-only decoder"),
        (MambaConfig(), "num_attention_heads"),
    ],
    ids=["dynamic", "longrope", "t5", "mamba"],
)
def test_configurations_are_refused_before_weights_are_read(config: PretrainedConfig, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_facts(config)


def test_a_model_that_drops_the_batch_on_its_way_is_refused() -> None:
    model = tiny_model("llama")
    attention = model.base_model.layers[1].self_attn
    forward = attention.forward
    attention.forward = lambda *args, passage, **kwargs: forward(*args, **kwargs)
    with pytest.raises(InputError, match="does not pass the batch on"):
        pack_model(model, page_size=16)


def test_a_layer_that_bypasses_the_seam_is_noticed() -> None:
    model = tiny_model("llama")
    attention = model.base_model.layers[2].self_attn
    attention.forward = lambda hidden_states, **kwargs: (hidden_states, None)
    with pytest.raises(InputError, match=r"in layers \[0, 1, 3\], expected all of its 4"):
        pack_model(model, page_size=16)


def test_a_family_that_changed_falls_back_to_its_own_modules() -> None:
    model = tiny_model("llama")
    mlp = model.base_model.layers[1].mlp
    forward = mlp.forward
    mlp.forward = lambda x: 1.5 * forward(x)
    target = pack_model(model, page_size=16)
    assert isinstance(target._body, SeamBody)


@pytest.mark.pitfall(34)
def test_head_of_another_vocabulary_is_refused_naming_both_shapes() -> None:
    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    model.lm_head = torch.nn.Linear(48, 101, bias=False)
    with pytest.raises(InputError, match=r"LM head .* shape \(101, 48\).* says \(97, 48\)"):
        pack_model(model, page_size=16)
