"""Complete configurations as functions, and the wiring of what only recipes may know together."""

from dspark.recipes.fit import fitted
from dspark.recipes.overrides import override
from dspark.recipes.recipe import Recipe, WritingPlan, with_seed
from dspark.recipes.registry import find_recipe

__all__ = ["Recipe", "WritingPlan", "find_recipe", "fitted", "override", "with_seed"]
