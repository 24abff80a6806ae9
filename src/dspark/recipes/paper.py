"""Recipes at the scale of the DSpark paper (sections 4 and 5), and their twins that run on a CPU.

The large ones are meant for ``torchrun`` on many GPUs, with prompts answered anew by the target (``dspark data
regenerate``); ``dspark train NAME --dry-run`` states what they take. The twins change sizes only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from dspark.drafters.dspark import DSparkConfig
from dspark.drafters.losses import LossWeights
from dspark.recipes import shipped
from dspark.recipes.recipe import Recipe
from dspark.training.config import Parallel, TrainConfig
from dspark.training.cost import TargetSizes
from dspark.training.optim import OptimConfig

_SEQUENCES, _EPOCHS, _BATCH = 500_000, 10, 512
_STEPS = _SEQUENCES * _EPOCHS // _BATCH
_TAPS = 5


@dataclass(frozen=True, kw_only=True)
class _Target:
    """Sizes of a large target; ``mask`` is a token of its vocabulary that no text contains."""

    name: str
    parameters: float
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    mask: int
    rope_theta: float = 1e6
    positions: int = 40960


_QWEN3 = {"vocabulary": 151_936, "mask": 151_669, "head_dim": 128, "kv_heads": 8}
_TARGETS = {
    "qwen3-4b": _Target(
        name="Qwen3-4B", parameters=4.02e9, hidden=2560, intermediate=9728, layers=36, heads=32, **_QWEN3
    ),
    "qwen3-8b": _Target(
        name="Qwen3-8B", parameters=8.19e9, hidden=4096, intermediate=12288, layers=36, heads=32, **_QWEN3
    ),
    "qwen3-14b": _Target(
        name="Qwen3-14B", parameters=14.8e9, hidden=5120, intermediate=17408, layers=40, heads=40, **_QWEN3
    ),
    "gemma3-12b": _Target(
        name="Gemma-3-12B",
        parameters=11.8e9,
        hidden=3840,
        intermediate=15360,
        layers=48,
        heads=16,
        kv_heads=8,
        head_dim=256,
        vocabulary=262_208,
        mask=4,
        positions=131_072,
    ),
}


def paper_recipes() -> dict[str, Callable[[], Recipe]]:
    """All recipes of this file by name."""
    large: dict[str, Callable[[], Recipe]] = {name: partial(_recipe, target) for name, target in _TARGETS.items()}
    return {**large, "production-moe": production_moe, "paper-cpu": paper_cpu, "production-moe-cpu": production_moe_cpu}


def production_moe() -> Recipe:
    """Three mixture-of-experts layers that look back 128 tokens, blocks of five, for Qwen3-8B."""
    base = _recipe(_TARGETS["qwen3-8b"])
    return replace(base, training=_with_experts(base.training, experts=64, chosen=4))


def paper_cpu() -> Recipe:
    """The paper's drafter and loss on the default target: five layers, full vocabulary, rank 256."""
    drafter = replace(shipped.drafter(), num_hidden_layers=5, markov_rank=256, draft_vocab_size=None)
    training = replace(
        shipped.training(), drafter=drafter, loss=_LOSS, phases=(), optim=_optim(steps=1_200), validate_every=100
    )
    return Recipe(training=training)


def production_moe_cpu() -> Recipe:
    """The production drafter in small, on the default target."""
    base = paper_cpu()
    drafter = replace(shipped.drafter(), intermediate_size=768)
    return replace(base, training=_with_experts(replace(base.training, drafter=drafter), experts=8, chosen=2))


_LOSS = LossWeights(ce=0.1, kl=0.0, tv=0.9, confidence=1.0, decay=4.0)


def _optim(steps: int) -> OptimConfig:
    return OptimConfig(lr=6e-4, warmup=round(0.04 * steps), steps=steps, clip=1.0)


def _recipe(target: _Target) -> Recipe:
    """Five layers, blocks of seven, 512 anchors of each of 512 sequences a step, ten epochs."""
    drafter = DSparkConfig(
        hidden_size=target.hidden,
        intermediate_size=target.intermediate,
        num_hidden_layers=5,
        num_attention_heads=target.heads,
        num_key_value_heads=target.kv_heads,
        head_dim=target.head_dim,
        vocab_size=target.vocabulary,
        block_size=7,
        mask_token_id=target.mask,
        target_layer_ids=_taps(target.layers),
        num_target_layers=target.layers,
        rope_theta=target.rope_theta,
        max_position_embeddings=target.positions,
    )
    training = TrainConfig(
        drafter=drafter,
        loss=_LOSS,
        optim=_optim(_STEPS),
        sequences_per_step=_BATCH,
        anchors_per_sequence=512,
        micro_batches=8,
        validation_sequences=256,
        parallel=Parallel.FSDP2,
        tensorboard=True,
    )
    sizes = TargetSizes(
        name=target.name,
        parameters=round(target.parameters),
        hidden_size=target.hidden,
        vocab_size=target.vocabulary,
    )
    return Recipe(training=training, target=sizes)


def _taps(layers: int) -> tuple[int, ...]:
    """Evenly spread layers, the second to the third from the end (paper section 2)."""
    first, last = 1, layers - 3
    return tuple(round(first + (last - first) * tap / (_TAPS - 1)) for tap in range(_TAPS))


def _with_experts(training: TrainConfig, *, experts: int, chosen: int) -> TrainConfig:
    """The production shape, with experts as wide together as the dense layer they replace."""
    drafter = training.drafter
    assert isinstance(drafter, DSparkConfig)
    shaped = replace(
        drafter,
        num_hidden_layers=3,
        block_size=5,
        sliding_window=128,
        num_experts=experts,
        num_experts_per_tok=chosen,
        moe_intermediate_size=drafter.intermediate_size // chosen,
    )
    return replace(training, drafter=shaped)
