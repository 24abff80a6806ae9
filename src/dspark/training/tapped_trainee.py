"""What all drafters that read tapped target features have in common in training."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dspark.core import InputError
from dspark.drafters.losses import FrozenTarget, LossWeights
from dspark.training.prepare import choose_draft_vocabulary, feature_scale, frozen_target, initialise
from dspark.training.trainee import Borrowed, Setting

_SAME = 1e-2


class Checkpoint(Protocol):
    """An exported drafter, read back."""

    @property
    def config(self) -> Any: ...  # noqa: D102

    @property
    def model(self) -> nn.Module: ...  # noqa: D102

    @property
    def embed(self) -> Tensor | None: ...  # noqa: D102

    @property
    def lm_head(self) -> Tensor | None: ...  # noqa: D102

    @property
    def draft_to_target(self) -> Tensor | None: ...  # noqa: D102


class TappedTrainee(ABC):
    """Draft vocabulary, feature scale, fresh or taken-over weights, export. The model is the objective's ``model``.

    Features are scaled while training, and the scale is folded into ``fc`` of the checkpoint.
    """

    muon_prefixes = ("model.layers.", "model.fc.")
    may_differ: ClassVar[frozenset[str]]
    """Fields in which a checkpoint that is taken over may differ from the run's drafter."""

    def __init__(self, config: Any, setting: Setting) -> None:
        """Begin with fresh weights, or with those of ``setting.init_from``.

        Raises:
            InputError: a checkpoint of other shapes or with other matrices than the target's.
        """
        self.config, self._source, self._device = config, setting.source, setting.device
        self._corpus = setting.source.corpus
        start = None if setting.init_from is None else self._fitting(setting.init_from, setting.borrowed)
        self._vocabulary, self._scale = self._settle(start, setting)
        if start is None:
            model = initialise(self._build, setting.seed)
        else:
            model = _with_scale(start.model.float(), 1 / self._scale)
        target = frozen_target(
            setting.borrowed, self._vocabulary, self._scale, dtype=setting.dtype, device=setting.device
        )
        self.module: Any = self._objective(model.to(setting.device), target, setting.loss)

    @abstractmethod
    def _build(self) -> nn.Module:
        """The model, not yet initialised."""

    @abstractmethod
    def _objective(self, model: nn.Module, target: FrozenTarget, loss: LossWeights) -> nn.Module:
        """The module to train."""

    @abstractmethod
    def _read(self, folder: Path) -> Checkpoint:
        """Read a checkpoint."""

    @abstractmethod
    def _write(self, folder: Path, model: nn.Module, vocabulary: Tensor | None) -> None:
        """Write a checkpoint."""

    def _settle(self, start: Checkpoint | None, setting: Setting) -> tuple[Tensor, Tensor]:
        """Draft vocabulary and feature scale: those of the run taken up, else of the checkpoint, else of the data."""
        if setting.extras is not None:
            return setting.extras["vocabulary"], setting.extras["feature_scale"]
        config, known = self.config, None if start is None else start.draft_to_target
        if known is None:
            known = choose_draft_vocabulary(self._corpus, config.vocab_size, config.draft_vocab_size)
        return known, feature_scale(self._source)

    def _fitting(self, folder: Path, borrowed: Borrowed) -> Checkpoint:
        """Read a checkpoint to go on from; InputError if it is not of the run's shapes or not of its target."""
        start = self._read(folder)
        for field in fields(self.config):
            got, wanted = getattr(start.config, field.name), getattr(self.config, field.name)
            if got != wanted and field.name not in self.may_differ:
                name = field.name
                raise InputError(f"{folder} has {name} {got}, the run's drafter {wanted}; set drafter.{name}")
        head, known = borrowed.head, start.draft_to_target
        if known is not None:
            head = head[known.to(head.device)]
        for what, own, targets in (("LM head", start.lm_head, head), ("embedding", start.embed, borrowed.embedding)):
            if own is not None and not _alike(own, targets):
                raise InputError(f"{folder} has an own {what}, not the target's; it cannot be gone on from")
        return start

    def set_loss(self, weights: LossWeights) -> None:
        """From now on use these weights."""
        self.module.factors = weights

    def extras(self) -> Mapping[str, Tensor]:
        """The draft vocabulary [Vd] and the feature scale [m * D]."""
        return {"vocabulary": self._vocabulary, "feature_scale": self._scale}

    def export(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write the drafter in bfloat16, feature scale folded in, without embedding and LM head (the target's)."""
        model = self._build()
        model.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})
        reduced = self.config.draft_vocab_size is not None
        self._write(folder, _with_scale(model, self._scale), self._vocabulary if reduced else None)


def each_once(rows: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that stand at chosen places of a grid, each once, increasing; and for every place which of them it is.

    Args:
        rows: int64 rows of packed sequences, of any shape.
        chosen: bool, of the same shape.

    Returns:
        [U] int64, and places int64 of the grid's shape (0 where not chosen).
    """
    needed, found = np.unique(rows[chosen], return_inverse=True)
    places = np.zeros(chosen.shape, np.int64)
    places[chosen] = found
    return needed, places


def _with_scale(model: nn.Module, scale: Tensor) -> Any:
    """A copy whose ``fc`` reads features that are not multiplied by the scale [m * D] any more."""
    changed: Any = copy.deepcopy(model)
    with torch.no_grad():
        changed.fc.weight.mul_(scale)
    return changed


def _alike(own: Tensor, target: Tensor) -> bool:
    """Equal but for rounding and a common factor (some families scale their embeddings)."""
    if own.shape != target.shape:
        return False
    one, other = (matrix.detach().float().cpu() for matrix in (own, target))
    return float((one / one.norm() - other / other.norm()).norm()) <= _SAME
