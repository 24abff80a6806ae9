"""The small twin of the shipped recipe: the same path in seconds, for a target of 3 layers, width 32, 264 tokens."""

from __future__ import annotations

from dspark.data.synthesis import SynthesisConfig
from dspark.drafters.dspark import DSparkConfig, HeadType
from dspark.drafters.losses import LossWeights
from dspark.recipes.recipe import Recipe, WritingPlan
from dspark.training.config import TrainConfig
from dspark.training.optim import OptimConfig


def tiny() -> Recipe:
    """A handful of short conversations, a one-layer drafter, a few steps."""
    synthesis = SynthesisConfig(user_lengths=(64,), answer_lengths=(16, 32), second_turn=0.0, max_tokens=256)
    return Recipe(
        writing=WritingPlan(synthesis=synthesis, top_k=264, chunk=32, requests_at_a_time=32), training=training()
    )


def training() -> TrainConfig:
    """A run of a few steps."""
    return TrainConfig(
        drafter=drafter(),
        loss=LossWeights(ce=0.1, kl=1.0, tv=0.5, confidence=0.3),
        optim=OptimConfig(lr=2e-3, muon_lr=2e-3, warmup=2, steps=6, decay_share=0.3),
        sequences_per_step=2,
        anchors_per_sequence=4,
        validation_sequences=2,
        validate_every=3,
        save_every=3,
        bf16=False,
    )


def drafter() -> DSparkConfig:
    """A drafter for the tiny target."""
    return DSparkConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        vocab_size=264,
        block_size=4,
        mask_token_id=5,
        target_layer_ids=(0, 1),
        num_target_layers=3,
        max_position_embeddings=512,
        head_type=HeadType.VANILLA,
        markov_rank=8,
        num_anchors=4,
        draft_vocab_size=128,
    )
