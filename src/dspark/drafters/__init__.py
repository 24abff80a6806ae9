"""Drafters: what proposes the blocks that the target verifies."""

from dspark.drafters.dspark import DSparkDrafter
from dspark.drafters.eagle3 import Eagle3Drafter
from dspark.drafters.load import load_drafter
from dspark.drafters.ngram import NgramDrafter
from dspark.drafters.null import NullDrafter
from dspark.drafters.protocol import Drafter

__all__ = ["DSparkDrafter", "Drafter", "Eagle3Drafter", "NgramDrafter", "NullDrafter", "load_drafter"]
