"""The recipe of the drafter that comes with dspark, for the default target SmolLM2-135M-Instruct."""

from __future__ import annotations

from dspark.data.synthesis import SynthesisConfig
from dspark.drafters.dspark import DSparkConfig, HeadType
from dspark.drafters.losses import LossWeights
from dspark.recipes.recipe import Recipe, WritingPlan
from dspark.training.config import TrainConfig
from dspark.training.optim import OptimConfig


def shipped() -> Recipe:
    """Self-written conversations, then a two-layer drafter with blocks of seven and a reduced vocabulary."""
    return Recipe(writing=WritingPlan(synthesis=SynthesisConfig()), training=training())


def training() -> TrainConfig:
    """The run: a loss with a gradient where the distributions hardly overlap yet, Muon for the matrices.

    1,500 conversations (about 310,000 tokens) and 1,200 steps, about an hour on two cores. The drafter overfits beyond
    that; for a better one, write more conversations before training longer.
    """
    return TrainConfig(
        drafter=drafter(),
        loss=LossWeights(ce=0.2, kl=0.8, tv=0.8, confidence=0.3),
        optim=OptimConfig(lr=2e-3, muon_lr=2e-3, warmup=40, steps=1_200, decay_share=0.5),
        sequences_per_step=16,
        anchors_per_sequence=16,
    )


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
        draft_vocab_size=8192,
    )
