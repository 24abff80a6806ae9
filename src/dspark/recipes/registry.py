"""Recipes by name."""

from __future__ import annotations

from difflib import get_close_matches

from dspark.core import InputError
from dspark.recipes.baselines import dflash, dspark, dspark_gated, dspark_one_layer, dspark_rnn, eagle3
from dspark.recipes.paper import paper_recipes
from dspark.recipes.recipe import Recipe
from dspark.recipes.shipped import confidence, shipped
from dspark.recipes.tiny import tiny

RECIPES = {
    "shipped": shipped,
    "confidence": confidence,
    "tiny": tiny,
    "dspark": dspark,
    "dspark-gated": dspark_gated,
    "dspark-rnn": dspark_rnn,
    "dspark-1-layer": dspark_one_layer,
    "dflash": dflash,
    "eagle3": eagle3,
    **paper_recipes(),
}
"""Functions that return complete recipes."""


def find_recipe(name: str) -> Recipe:
    """Build the recipe of that name.

    Raises:
        InputError: there is none; the nearest one is named.
    """
    if name in RECIPES:
        return RECIPES[name]()
    near = get_close_matches(name, RECIPES, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"there is no recipe {name!r}; {hint}known are: {', '.join(RECIPES)}")
