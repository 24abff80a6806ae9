"""The recipe of the drafter that comes with dspark, for the default target SmolLM2-135M-Instruct."""

from __future__ import annotations

from dataclasses import replace

from dspark.drafters.dspark import DSparkConfig, HeadType
from dspark.drafters.losses import LossWeights
from dspark.recipes.recipe import Recipe
from dspark.training.config import LossPhase, TrainConfig
from dspark.training.optim import OptimConfig

_CONFIDENCE = 0.3


def shipped() -> Recipe:
    """Self-written conversations, then a two-layer drafter with blocks of seven and a reduced vocabulary."""
    return Recipe(training=training())


def training() -> TrainConfig:
    """The run: short blocks and a loss with a gradient where the distributions hardly overlap yet, then the real thing.

    Meant for a million tokens and more; with less the drafter learns its text by heart. A step takes about two seconds
    of one core.
    """
    return TrainConfig(
        drafter=drafter(),
        phases=(
            LossPhase(share=0.6, block_size=4, anchors_per_sequence=28, ce=0.1, kl=1.0, tv=0.5, confidence=_CONFIDENCE),
        ),
        loss=LossWeights(ce=0.2, kl=0.7, tv=1.0, confidence=_CONFIDENCE),
        optim=OptimConfig(lr=2e-3, muon_lr=2e-3, warmup=40, steps=3_000, decay_share=0.4),
        sequences_per_step=16,
        anchors_per_sequence=16,
    )


def confidence() -> Recipe:
    """The confidence head alone, on text that the rest has not learnt from: there, acceptance is what it will be.

    Goes on from a trained drafter (``--init-from``).
    """
    base = training()
    alone = replace(
        base,
        phases=(),
        loss=LossWeights(ce=0.0, kl=0.0, tv=0.0, confidence=1.0),
        optim=OptimConfig(lr=2e-3, warmup=10, steps=150),
        anchors_per_sequence=24,
        validate_every=50,
        trained=("confidence_head",),
    )
    return Recipe(training=alone)


def drafter() -> DSparkConfig:
    """Two layers as wide as the target, with three times its key/value heads: a thin context costs acceptance."""
    return DSparkConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=2,
        num_attention_heads=9,
        num_key_value_heads=9,
        head_dim=64,
        vocab_size=49152,
        block_size=7,
        mask_token_id=6,
        target_layer_ids=(1, 8, 14, 20, 27),
        num_target_layers=30,
        rms_norm_eps=1e-5,
        rope_theta=100_000.0,
        max_position_embeddings=8192,
        head_type=HeadType.VANILLA,
        markov_rank=64,
        num_anchors=16,
        draft_vocab_size=10_240,
    )
