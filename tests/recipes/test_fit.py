"""Recipes brought to the size of a target."""

from __future__ import annotations

from dataclasses import replace

from dspark.recipes import find_recipe, fitted
from dspark.recipes.fit import _spread
from dspark.target import LoadedTarget


def test_a_recipe_that_fits_stays(loaded: LoadedTarget) -> None:
    tiny = find_recipe("tiny").training
    assert fitted(tiny, loaded) is tiny


def test_a_recipe_for_a_larger_target(loaded: LoadedTarget) -> None:
    shipped = find_recipe("shipped").training
    drafter, facts = fitted(shipped, loaded).drafter, loaded.target.facts
    assert (drafter.hidden_size, drafter.vocab_size, drafter.num_target_layers) == (32, 264, 3)
    assert (drafter.num_attention_heads, drafter.head_dim) == (facts.num_heads, facts.head_dim)
    assert drafter.draft_vocab_size == 264
    assert drafter.intermediate_size == round(32 * shipped.drafter.intermediate_size / shipped.drafter.hidden_size)
    assert drafter.target_layer_ids == (0, 1)
    assert drafter.mask_token_id in facts.eos_token_ids
    assert (drafter.block_size, drafter.head_type) == (shipped.drafter.block_size, shipped.drafter.head_type)
    assert replace(fitted(shipped, loaded), drafter=shipped.drafter) == shipped


def test_taps_keep_their_depth() -> None:
    assert _spread((1, 8, 14, 20, 27), 30, 30) == (1, 8, 14, 20, 27)
    assert _spread((1, 8, 14, 20, 27), 30, 58) == (2, 16, 28, 40, 54)
    assert _spread((-1, 0, 1), 3, 16) == (-1, 0, 14)
    assert _spread((0, 1), 2, 1) == (-1,)
