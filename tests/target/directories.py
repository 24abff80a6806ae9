"""Tiny model directories on disk."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from .families import SIZES, tiny_model


def tiny_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """A word-level tokenizer of ``size`` words w0, w1, ..."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0")


def save_tiny(folder: Path, family: str = "llama", *, words: int = SIZES["vocab_size"]) -> PreTrainedModel:
    """Write a complete directory; returns the model in it."""
    model = tiny_model(family)
    model.save_pretrained(folder)
    tiny_tokenizer(words).save_pretrained(folder)
    return model
