"""What the trainer asks of a kind of drafter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from dspark.drafters.losses import LossWeights


class Trainee(Protocol):
    """One drafter in training.

    Attributes:
        kind: ``dspark`` or ``eagle3``.
        module: ``module(batch)`` returns LossSums; its parameters are exactly what is trained, so that DDP and FSDP2
            can wrap it. It lies on ``device`` already. What is borrowed from the target is no parameter.
        muon_prefixes: prefixes of the names of those parameters whose matrices may be trained by Muon.
    """

    kind: str
    module: nn.Module
    muon_prefixes: tuple[str, ...]

    def usable(self, sequences: np.ndarray) -> np.ndarray:
        """Those of the sequence indices [n] that something can be learnt from."""

    def batch(self, sequences: np.ndarray, rng: np.random.Generator, anchors_per_sequence: int) -> Any:
        """One micro-batch of these sequences [N] of the feature source, on the module's device."""

    def weight(self, batch: Any) -> float:
        """Sum of the slots' weights under the present loss, known before the forward."""

    def set_loss(self, weights: LossWeights) -> None:
        """From now on use these weights; called at the start of each phase of the schedule."""

    def describe(self) -> dict[str, Any]:
        """The drafter's configuration as JSON values, for the provenance file and to refuse a foreign resume."""

    def extras(self) -> dict[str, Tensor]:
        """What was derived from the data and must stay as it is when a run is resumed or a checkpoint taken up (draft
        vocabulary, feature scale)."""

    def load_checkpoint(self, folder: Path) -> None:
        """Take over the weights of an exported checkpoint of the same shapes (``init_from``).

        Raises:
            InputError: no checkpoint, or one of other shapes or another draft vocabulary.
        """

    def export(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write a checkpoint that engines load, from full weights by the names of ``module.state_dict()``."""
