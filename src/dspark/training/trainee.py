"""What the trainer asks of a kind of drafter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dspark.drafters.losses import LossWeights
from dspark.training.source import FeatureSource


@dataclass(frozen=True, kw_only=True)
class Borrowed:
    """What every drafter borrows from its target.

    Attributes:
        embedding: [V, D], the family's own scaling included.
        head: [V, D] output matrix.
        logit_softcap: final soft-cap of the target's logits.
    """

    embedding: Tensor
    head: Tensor
    logit_softcap: float | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a trainee grows up; every kind of trainee is built from its drafter's configuration and this.

    Attributes:
        source: features and conversations.
        borrowed: the target's matrices, on any device and in any float type.
        device, dtype: of the computation; parameters are float32 on ``device`` and autocast is the trainer's business.
        seed: of the initial weights.
        loss: weights of the first phase.
        extras: what ``Trainee.extras`` returned when the run began; None in a new run.
        init_from: an exported checkpoint to start from, its vocabulary and feature scale included; None for fresh
            weights.
    """

    source: FeatureSource
    borrowed: Borrowed
    device: torch.device
    dtype: torch.dtype
    seed: int
    loss: LossWeights
    extras: Mapping[str, Tensor] | None = None
    init_from: Path | None = None


class Trainee(Protocol):
    """One drafter in training.

    A micro-batch comes in two steps: ``draw`` is cheap and decides what is learnt from, so that the weight of the whole
    global batch is known before the first forward; ``batch`` fetches the features.
    """

    @property
    def module(self) -> nn.Module:
        """``module(batch)`` returns LossSums; its parameters are exactly what is trained, so that DDP and FSDP2 can
        wrap it. What is borrowed from the target is no parameter and no buffer."""
        ...

    @property
    def muon_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the names of those parameters whose matrices may be trained by Muon."""
        ...

    def usable(self, sequences: np.ndarray) -> np.ndarray:
        """Those of the sequence indices [n] that something can be learnt from."""
        ...

    def draw(
        self, sequences: np.ndarray, key: tuple[int, ...], anchors_per_sequence: int, block_size: int | None = None
    ) -> Any:
        """What is to be learnt from these sequences [N] of the source.

        Sequence s draws from ``numpy.random.default_rng((*key, s))`` alone, so that it does not matter how a global
        batch is cut into micro-batches and ranks. An empty key takes the first anchors of each sequence, in order.
        Blocks have ``block_size`` slots, by default as many as the drafter proposes.
        """
        ...

    def weight(self, draw: Any) -> float:
        """Sum of the slots' weights under the present loss."""
        ...

    def batch(self, draw: Any) -> Any:
        """The micro-batch on the module's device."""
        ...

    def set_loss(self, weights: LossWeights) -> None:
        """From now on use these weights; called when a phase of the schedule begins."""
        ...

    def extras(self) -> Mapping[str, Tensor]:
        """What was taken from data or checkpoint and is no parameter (draft vocabulary, feature scale)."""
        ...

    def export(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write a checkpoint that engines load, from full CPU weights by the names of ``module.state_dict()``."""
        ...
