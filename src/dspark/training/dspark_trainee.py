"""DSpark and DFlash in training."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.dspark import DSparkCheckpoint, DSparkConfig, DSparkModel, load_checkpoint, save_checkpoint
from dspark.drafters.dspark.objective import DSparkObjective
from dspark.drafters.dspark.training_batch import DraftTrainingBatch, padding
from dspark.drafters.losses import LossWeights, slot_weights
from dspark.training.anchors import anchor_candidates, drawn_anchors, slots_that_count
from dspark.training.prepare import choose_draft_vocabulary, feature_scale, frozen_target, initialise
from dspark.training.trainee import Setting

_MAY_DIFFER = {"num_anchors", "max_position_embeddings"}


@dataclass(frozen=True, kw_only=True)
class AnchorDraw:
    """Anchors of some sequences.

    Attributes:
        sequences: [N] int64.
        anchors: [N, A] int64; dummies where a sequence has fewer candidates.
        mask: [N, A, G] bool slots that count.
    """

    sequences: np.ndarray
    anchors: np.ndarray
    mask: np.ndarray


class DSparkTrainee:
    """A drafter with blocks of slots, its data and its losses."""

    muon_prefixes = ("model.layers.", "model.fc.")

    def __init__(self, config: DSparkConfig, setting: Setting) -> None:
        """Begin with fresh weights, or with those of ``setting.init_from``.

        Raises:
            InputError: features the drafter does not read, or a checkpoint of other shapes.
        """
        self.config, self._source, self._device = config, setting.source, setting.device
        self._corpus = setting.source.corpus
        start = None if setting.init_from is None else _fitting_checkpoint(setting.init_from, config)
        self._vocabulary, self._scale = self._settle(start, setting)
        model = initialise(config, setting.seed) if start is None else _unfolded(start.model, self._scale)
        target = frozen_target(
            setting.borrowed, self._vocabulary, self._scale, dtype=setting.dtype, device=setting.device
        )
        self.module = DSparkObjective(model.to(setting.device), target, setting.loss)

    def _settle(self, start: DSparkCheckpoint | None, setting: Setting) -> tuple[Tensor, Tensor]:
        """Draft vocabulary and feature scale: those of the run taken up, else of the checkpoint, else of the data."""
        if setting.extras is not None:
            return setting.extras["vocabulary"], setting.extras["feature_scale"]
        config, known = self.config, None if start is None else start.draft_to_target
        if known is None:
            known = choose_draft_vocabulary(self._corpus, config.vocab_size, config.draft_vocab_size)
        return known, feature_scale(self._source)

    def usable(self, sequences: np.ndarray) -> np.ndarray:
        """Those with at least one anchor candidate."""
        return np.array([s for s in sequences if len(anchor_candidates(self._corpus.mask_of(s)))], dtype=np.int64)

    def draw(self, sequences: np.ndarray, key: tuple[int, ...], anchors_per_sequence: int) -> AnchorDraw:
        """Draw anchors uniformly without replacement from each of the sequences [N]."""
        shape = (len(sequences), anchors_per_sequence)
        anchors, mask = np.zeros(shape, np.int64), np.zeros((*shape, self.config.block_size), bool)
        for row, sequence in enumerate(sequences.tolist()):
            drawn = drawn_anchors(self._corpus, sequence, key, anchors_per_sequence)
            anchors[row, : len(drawn)] = drawn
            mask[row, : len(drawn)] = slots_that_count(self._corpus.mask_of(sequence), drawn, self.config.block_size)
        return AnchorDraw(sequences=sequences, anchors=anchors, mask=mask)

    def weight(self, draw: AnchorDraw) -> float:
        """Sum of the weights of all slots that count."""
        return float(slot_weights(torch.from_numpy(draw.mask), self.module.factors.decay).double().sum())

    def batch(self, draw: AnchorDraw) -> DraftTrainingBatch:
        """Fetch features and teacher rows of the drawn blocks."""
        lengths = self._corpus.lengths[draw.sequences]
        firsts = np.cumsum(lengths) - lengths
        within = np.minimum(draw.anchors[..., None] + np.arange(self.config.block_size + 1), lengths[:, None, None] - 1)
        flat = firsts[:, None, None] + within  # rows of the packed sequences
        taught, places = np.unique(flat[..., :-1][draw.mask], return_inverse=True)
        teacher_rows = np.zeros(draw.mask.shape, np.int64)
        teacher_rows[draw.mask] = places
        fetched = self._source.fetch(draw.sequences, taught)
        ids = self._corpus.ids[self._corpus.rows(draw.sequences)]
        gather, keys = padding(lengths)
        return DraftTrainingBatch(
            features=fetched.features,
            positions=torch.from_numpy(np.concatenate([np.arange(size) for size in lengths])),
            gather=torch.from_numpy(gather),
            key_positions=torch.from_numpy(keys),
            anchors=torch.from_numpy(draw.anchors),
            tokens=torch.from_numpy(ids[flat].astype(np.int64)),
            teacher_hidden=fetched.hidden,
            log_z=fetched.log_z,
            teacher_rows=torch.from_numpy(teacher_rows),
            mask=torch.from_numpy(draw.mask),
        ).to(self._device)

    def set_loss(self, weights: LossWeights) -> None:
        """From now on use these weights."""
        self.module.factors = weights

    def extras(self) -> Mapping[str, Tensor]:
        """The draft vocabulary [Vd] and the feature scale [m * D]."""
        return {"vocabulary": self._vocabulary, "feature_scale": self._scale}

    def export(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write the drafter in bfloat16, feature scale folded in, without embedding and LM head (the target's)."""
        model = DSparkModel(self.config)
        model.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})
        with torch.no_grad():
            model.fc.weight.mul_(self._scale)
        reduced = self.config.draft_vocab_size is not None
        save_checkpoint(folder, DSparkCheckpoint(model=model, draft_to_target=self._vocabulary if reduced else None))


def _fitting_checkpoint(folder: Path, config: DSparkConfig) -> DSparkCheckpoint:
    """Read a checkpoint to go on from; InputError if it is not of the run's shapes."""
    start = load_checkpoint(folder)
    for field in fields(config):
        got, wanted = getattr(start.config, field.name), getattr(config, field.name)
        if got != wanted and field.name not in _MAY_DIFFER:
            raise InputError(f"{folder} has {field.name} {got}, the run's drafter {wanted}; set drafter.{field.name}")
    return start


def _unfolded(model: DSparkModel, scale: Tensor) -> DSparkModel:
    """Training weights in float32 of an exported drafter: ``fc`` reads scaled features again."""
    trained = copy.deepcopy(model).float()
    with torch.no_grad():
        trained.fc.weight.div_(scale)
    return trained
