"""Bringing a recipe's drafter to the size of the target it is trained for."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from dspark.target import LoadedTarget
from dspark.target.facts import TargetFacts
from dspark.training.config import DrafterConfig, TrainConfig


def fitted(config: TrainConfig, loaded: LoadedTarget) -> TrainConfig:
    """The run with a drafter of the target's width, depth and vocabulary; as it is if it has them already."""
    return fitted_to(config, loaded.target.facts)


def fitted_to(config: TrainConfig, facts: TargetFacts) -> TrainConfig:
    """The same for a target of which only the facts are known."""
    drafter = config.drafter
    sizes = (drafter.hidden_size, drafter.num_target_layers, drafter.vocab_size)
    if sizes == (facts.hidden_size, facts.num_layers, facts.vocab_size):
        return config
    return replace(config, drafter=_resized(drafter, facts))


def _resized(drafter: Any, facts: TargetFacts) -> DrafterConfig:
    """The same kind of drafter: heads of the target, MLPs and taps in proportion.

    Mask slots get the embedding of an end-of-text token, as no block starts from one.
    """
    vocabulary, widths = drafter.draft_vocab_size, ("intermediate_size", "moe_intermediate_size")
    sizes = {
        "hidden_size": facts.hidden_size,
        "num_attention_heads": facts.num_heads,
        "num_key_value_heads": facts.num_heads,
        "head_dim": facts.head_dim,
        "vocab_size": facts.vocab_size,
        "draft_vocab_size": None if vocabulary is None else min(vocabulary, facts.vocab_size),
        "mask_token_id": min(facts.eos_token_ids, default=0),
        "target_layer_ids": _spread(drafter.target_layer_ids, drafter.num_target_layers, facts.num_layers),
        "num_target_layers": facts.num_layers,
        "max_position_embeddings": facts.max_positions,
        **{
            name: round(getattr(drafter, name) * facts.hidden_size / drafter.hidden_size)
            for name in widths
            if getattr(drafter, name, None) is not None
        },
    }
    known = {field.name for field in fields(drafter)}
    resized: DrafterConfig = replace(drafter, **{name: value for name, value in sizes.items() if name in known})
    return resized


def _spread(taps: tuple[int, ...], layers: int, wanted: int) -> tuple[int, ...]:
    """Taps at the same relative depths of another number of layers, the last layer left out."""
    return tuple(sorted({max(-1, min(wanted - 2, round(tap * (wanted - 2) / max(1, layers - 2)))) for tap in taps}))
