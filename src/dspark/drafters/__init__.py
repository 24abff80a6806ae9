"""Drafters: what proposes the blocks that the target verifies."""

from dspark.drafters.dspark import DSparkDrafter, load_drafter
from dspark.drafters.ngram import NgramDrafter
from dspark.drafters.null import NullDrafter
from dspark.drafters.protocol import Drafter

__all__ = ["DSparkDrafter", "Drafter", "NgramDrafter", "NullDrafter", "load_drafter"]
