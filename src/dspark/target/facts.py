"""What the rest of the house needs to know about a target model, read once at load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dspark.core import InputError

PROVEN_FAMILIES = frozenset({"llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral", "phi3", "smollm3"})
"""``config.model_type`` of the families whose packed forward is proven equal to the model run alone (tests/target)."""

_BATCH_DEPENDENT_ROPE = frozenset({"longrope", "dynamic"})
_CAUSAL_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """Sizes and habits of one decoder-only causal language model.

    Attributes:
        model_type: family name of the configuration.
        vocab_size: rows of the embedding and of the LM head, V.
        hidden_size: width of the residual stream, D.
        num_layers: decoder layers.
        num_heads: query heads.
        num_kv_heads: key/value heads.
        head_dim: size of one head.
        max_positions: positions 0 .. max_positions - 1 are usable.
        windows: per layer, keys a row may see counting itself; None without a limit.
        attn_softcap: soft-cap on attention scores, None without.
        logit_softcap: soft-cap on the final logits, None without.
        eos_token_ids: ids that end a text.
        tied_embeddings: the LM head is the embedding matrix.
        proven: the family is one of :data:`PROVEN_FAMILIES`.
        num_parameters: weights of the model, each tied matrix counted once; 0 until a model is loaded.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    windows: tuple[int | None, ...]
    attn_softcap: float | None
    logit_softcap: float | None
    eos_token_ids: frozenset[int]
    tied_embeddings: bool
    proven: bool
    num_parameters: int = 0

    def with_windows(self, windows: Iterable[int | None]) -> TargetFacts:
        """The same facts with the windows the layers were seen to ask for."""
        return replace(self, windows=tuple(windows))


def read_facts(config: Any, generation_config: Any | None = None) -> TargetFacts:
    """Read the facts out of a transformers configuration.

    Args:
        config: configuration of a causal language model.
        generation_config: its generation configuration, whose end-of-text ids win over those of ``config``.

    Raises:
        InputError: the configuration describes a kind of model that cannot run packed.
    """
    check_config(config)
    heads = config.num_attention_heads
    return TargetFacts(
        model_type=config.model_type,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        max_positions=config.max_position_embeddings,
        windows=(None,) * config.num_hidden_layers,
        attn_softcap=getattr(config, "attn_logit_softcapping", None),
        logit_softcap=getattr(config, "final_logit_softcapping", None),
        eos_token_ids=_ids(getattr(generation_config, "eos_token_id", None)) or _ids(config.eos_token_id),
        tied_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
        proven=config.model_type in PROVEN_FAMILIES,
    )


def check_config(config: Any) -> None:
    """Refuse configurations that a packed forward would silently compute wrongly.

    Raises:
        InputError: names the property that is in the way.
    """
    name = getattr(config, "model_type", "unknown")
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "vision_config", None) is not None:
        raise InputError(
            f"model type {name!r} is not a text-only decoder; expected a decoder-only causal language model"
        )
    needed = ("num_attention_heads", "num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
    if missing := [key for key in needed if getattr(config, key, None) is None]:
        raise InputError(f"model type {name!r} has no {missing[0]} in its configuration; it cannot run packed")
    if kinds := _rope_kinds(config) & _BATCH_DEPENDENT_ROPE:
        raise InputError(
            f"RoPE kind {sorted(kinds)[0]!r} of this {name!r} model depends on the longest text in the batch and "
            "cannot run packed; expected default, linear, llama3 or yarn"
        )
    layer_types = set(getattr(config, "layer_types", None) or ())
    if odd := layer_types - _CAUSAL_LAYER_TYPES:
        raise InputError(f"layers of kind {sorted(odd)[0]!r} are not supported; expected full or sliding attention")
    if getattr(config, "use_bidirectional_attention", False):
        raise InputError(f"this {name!r} model attends in both directions; expected a causal language model")
    if getattr(config, "attention_chunk_size", None):
        raise InputError(
            f"chunked attention of model type {name!r} is not supported; expected full or sliding attention"
        )


def _rope_kinds(config: Any) -> set[str]:
    """RoPE kinds of a configuration, which may keep one set of parameters or one per layer type."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    sets = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
    return {str(entry.get("rope_type", entry.get("type", "default"))) for entry in sets}


def _ids(value: int | Iterable[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset((value,) if isinstance(value, int) else value)
