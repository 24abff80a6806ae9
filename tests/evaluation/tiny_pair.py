"""A tiny target with a byte-level tokenizer, and random drafters for it, as directories on disk."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from dspark.drafters.dspark import DSparkCheckpoint, DSparkConfig, DSparkModel, HeadType, save_checkpoint

SPECIAL = ("<|end|>", "<|start|>")
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
POSITIONS = 512


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, two special ones, and a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *alphabet))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=SPECIAL[0], bos_token=SPECIAL[1])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def save_tiny_target(folder: Path, *, seed: int = 0, hidden: int = 32) -> Path:
    """A Llama of three layers with random weights, in float32."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=264,
        hidden_size=hidden,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        eos_token_id=0,
        bos_token_id=1,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def tiny_drafter_config(**changes: object) -> DSparkConfig:
    """A drafter shape that fits the tiny target."""
    fields: dict = {
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "vocab_size": 264,
        "block_size": 4,
        "mask_token_id": 5,
        "target_layer_ids": (0, 1),
        "num_target_layers": 3,
        "max_position_embeddings": POSITIONS,
        "head_type": HeadType.VANILLA,
        "markov_rank": 8,
    }
    return DSparkConfig(**(fields | changes))


def save_tiny_drafter(folder: Path, *, seed: int = 0, **changes: object) -> Path:
    """A drafter with random weights."""
    torch.manual_seed(seed)
    model = DSparkModel(tiny_drafter_config(**changes))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    save_checkpoint(folder, DSparkCheckpoint(model=model), dtype=torch.float32)
    return folder
