"""Tiny random models of every proven family, with windows shorter than the texts and norms away from one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.1,
}
ALTERNATING = ["sliding_attention", "full_attention"] * 2

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama3_rope": lambda: LlamaConfig(
        **SIZES,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "qwen2": lambda: Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=7, layer_types=ALTERNATING),
    "qwen3": lambda: Qwen3Config(**SIZES, head_dim=16),
    "gemma2": lambda: Gemma2Config(
        **SIZES,
        head_dim=16,
        sliding_window=7,
        layer_types=ALTERNATING,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        query_pre_attn_scalar=11,
    ),
    "gemma3_text": lambda: Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=7, layer_types=ALTERNATING, query_pre_attn_scalar=11
    ),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=7),
    "phi3": lambda: Phi3Config(**SIZES, sliding_window=9, partial_rotary_factor=0.5),
    "smollm3": lambda: SmolLM3Config(**SIZES, no_rope_layers=[1, 1, 0, 1]),
}


def tiny_model(family: str, seed: int = 0) -> PreTrainedModel:
    """A random model of the family in float32, attention as transformers has it (eager)."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[family](), attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, -0.5 if "gemma" in family else 1.0, 0.3)
        elif name.endswith("bias"):
            torch.nn.init.normal_(parameter, 0.0, 0.2)
    return model
