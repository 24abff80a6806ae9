"""Drafters to compare with one another: same target, taps, data, steps and batches; only the design differs.

Each learns with the objective of its authors from the first step to the last. The shipped drafter's phases are left
out: an order of lessons that one design was given, and the others were not, would be compared as well.
"""

from __future__ import annotations

from dataclasses import replace

from dspark.drafters.dspark import DSparkConfig, HeadType
from dspark.drafters.eagle3 import Eagle3Config
from dspark.drafters.losses import LossWeights
from dspark.recipes import shipped
from dspark.recipes.recipe import Recipe


def dspark() -> Recipe:
    """DSpark as it is shipped, in one phase."""
    return _with_drafter(shipped.drafter())


def dspark_gated() -> Recipe:
    """DSpark with the gated sequential head."""
    return _with_head(HeadType.GATED)


def dspark_rnn() -> Recipe:
    """DSpark with the recurrent sequential head."""
    return _with_head(HeadType.RNN)


def dspark_one_layer() -> Recipe:
    """DSpark with half of the backbone."""
    return _with_drafter(replace(shipped.drafter(), num_hidden_layers=1))


def dflash() -> Recipe:
    """DFlash: the same backbone without sequential and confidence heads, learnt from the text alone."""
    drafter = replace(
        shipped.drafter(),
        head_type=HeadType.NONE,
        markov_rank=0,
        enable_confidence_head=False,
        confidence_head_with_markov=False,
    )
    return _with_drafter(drafter, LossWeights(ce=1.0, kl=0.0, tv=0.0, confidence=0.0))


def eagle3() -> Recipe:
    """Eagle3: one layer that runs token by token, learnt from the target's distributions by soft cross-entropy."""
    base = shipped.drafter()
    drafter = Eagle3Config(
        hidden_size=base.hidden_size,
        intermediate_size=base.intermediate_size,
        num_attention_heads=base.num_attention_heads,
        num_key_value_heads=base.num_key_value_heads,
        head_dim=base.head_dim,
        vocab_size=base.vocab_size,
        target_layer_ids=base.target_layer_ids,
        num_target_layers=base.num_target_layers,
        ttt_length=base.block_size,
        rms_norm_eps=base.rms_norm_eps,
        rope_theta=base.rope_theta,
        max_position_embeddings=base.max_position_embeddings,
        draft_vocab_size=base.draft_vocab_size,
    )
    return _with_drafter(drafter, LossWeights(ce=0.0, kl=1.0, tv=0.0, confidence=0.0))


def _with_head(head: HeadType) -> Recipe:
    return _with_drafter(replace(shipped.drafter(), head_type=head))


def _with_drafter(drafter: DSparkConfig | Eagle3Config, loss: LossWeights | None = None) -> Recipe:
    """The shipped recipe in one phase, with another drafter and perhaps another objective."""
    base = shipped.training()
    return Recipe(training=replace(base, drafter=drafter, phases=(), loss=loss or base.loss))
