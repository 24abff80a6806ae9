"""From a drafter's configuration to its kind of trainee."""

from __future__ import annotations

from dspark.core import InputError
from dspark.drafters.dspark import DSparkConfig
from dspark.drafters.eagle3 import Eagle3Config
from dspark.training.config import DrafterConfig
from dspark.training.dspark_trainee import DSparkTrainee
from dspark.training.eagle3_trainee import Eagle3Trainee
from dspark.training.trainee import Setting, Trainee


def make_trainee(drafter: DrafterConfig, setting: Setting) -> Trainee:
    """A drafter of this configuration in this setting.

    Raises:
        InputError: the features are not those it reads, its checkpoint is of other shapes, or no such kind is known.
    """
    _check_features(drafter, setting)
    if isinstance(drafter, DSparkConfig):
        return DSparkTrainee(drafter, setting)
    if isinstance(drafter, Eagle3Config):
        return Eagle3Trainee(drafter, setting)
    raise InputError(f"there is no training for drafters of kind {type(drafter).__name__}")


def _check_features(drafter: DrafterConfig, setting: Setting) -> None:
    spec = setting.source.spec
    got, expected = (spec.hidden_size, spec.tap_layers), (drafter.hidden_size, drafter.target_layer_ids)
    if got != expected:
        raise InputError(f"the features are (hidden size, taps) {got}, the drafter reads {expected}; write them again")
    vocabulary = setting.borrowed.embedding.shape[0]
    if vocabulary != drafter.vocab_size:
        raise InputError(f"the drafter is for {drafter.vocab_size} tokens, the target has {vocabulary}")
