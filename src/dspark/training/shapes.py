"""Drafters without weights: to count what they would have."""

from __future__ import annotations

import torch
from torch import nn

from dspark.core import InputError
from dspark.drafters.dspark import DSparkConfig, DSparkModel
from dspark.drafters.eagle3 import Eagle3Config, Eagle3Model
from dspark.training.config import DrafterConfig


def bare_module(drafter: DrafterConfig) -> nn.Module:
    """The drafter's module on the meta device.

    Raises:
        InputError: no such kind is known.
    """
    with torch.device("meta"):
        if isinstance(drafter, DSparkConfig):
            return DSparkModel(drafter)
        if isinstance(drafter, Eagle3Config):
            return Eagle3Model(drafter)
    raise InputError(f"there are no drafters of kind {type(drafter).__name__}")


def block_length(drafter: DrafterConfig) -> int:
    """Tokens that the drafter proposes per block."""
    return drafter.ttt_length if isinstance(drafter, Eagle3Config) else int(getattr(drafter, "block_size", 1))
