"""What the training objectives of all drafters share."""

from dspark.drafters.losses.confidence import confidence_loss
from dspark.drafters.losses.frozen_target import FrozenTarget
from dspark.drafters.losses.slot_terms import SlotTerms
from dspark.drafters.losses.sums import LossSums
from dspark.drafters.losses.vocabulary import Teacher, vocabulary_loss
from dspark.drafters.losses.weights import LossWeights, slot_weights

__all__ = [
    "FrozenTarget",
    "LossSums",
    "LossWeights",
    "SlotTerms",
    "Teacher",
    "confidence_loss",
    "slot_weights",
    "vocabulary_loss",
]
