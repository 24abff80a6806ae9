"""DSpark and DFlash in training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dspark.drafters.dspark import DSparkCheckpoint, DSparkConfig, DSparkModel, load_checkpoint, save_checkpoint
from dspark.drafters.dspark.objective import DSparkObjective
from dspark.drafters.dspark.training_batch import DraftTrainingBatch, padding
from dspark.drafters.losses import FrozenTarget, LossWeights, slot_weights
from dspark.training.anchors import anchor_candidates, drawn_anchors, slots_that_count
from dspark.training.tapped_trainee import TappedTrainee, each_once


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


class DSparkTrainee(TappedTrainee):
    """A drafter with blocks of slots, its data and its losses."""

    config: DSparkConfig
    may_differ = frozenset({"num_anchors", "max_position_embeddings"})

    def _build(self) -> DSparkModel:
        return DSparkModel(self.config)

    def _objective(self, model: nn.Module, target: FrozenTarget, loss: LossWeights) -> DSparkObjective:
        assert isinstance(model, DSparkModel)
        return DSparkObjective(model, target, loss)

    def _read(self, folder: Path) -> DSparkCheckpoint:
        return load_checkpoint(folder)

    def _write(self, folder: Path, model: nn.Module, vocabulary: Tensor | None) -> None:
        assert isinstance(model, DSparkModel)
        save_checkpoint(folder, DSparkCheckpoint(model=model, draft_to_target=vocabulary))

    def usable(self, sequences: np.ndarray) -> np.ndarray:
        """Those with at least one anchor candidate."""
        return np.array([s for s in sequences if len(anchor_candidates(self._corpus.mask_of(s)))], dtype=np.int64)

    def draw(
        self, sequences: np.ndarray, key: tuple[int, ...], anchors_per_sequence: int, block_size: int | None = None
    ) -> AnchorDraw:
        """Draw anchors uniformly without replacement from each of the sequences [N]."""
        shape = (len(sequences), anchors_per_sequence)
        slots = block_size or self.config.block_size
        anchors, mask = np.zeros(shape, np.int64), np.zeros((*shape, slots), bool)
        for row, sequence in enumerate(sequences.tolist()):
            drawn = drawn_anchors(self._corpus, sequence, key, anchors_per_sequence)
            anchors[row, : len(drawn)] = drawn
            mask[row, : len(drawn)] = slots_that_count(self._corpus.mask_of(sequence), drawn, slots)
        return AnchorDraw(sequences=sequences, anchors=anchors, mask=mask)

    def weight(self, draw: AnchorDraw) -> float:
        """Sum of the weights of all slots that count."""
        return float(slot_weights(torch.from_numpy(draw.mask), self.module.factors.decay).double().sum())

    def batch(self, draw: AnchorDraw) -> DraftTrainingBatch:
        """Fetch features and teacher rows of the drawn blocks."""
        lengths = self._corpus.lengths[draw.sequences]
        firsts = np.cumsum(lengths) - lengths
        within = np.minimum(draw.anchors[..., None] + np.arange(draw.mask.shape[-1] + 1), lengths[:, None, None] - 1)
        flat = firsts[:, None, None] + within  # rows of the packed sequences
        taught, teacher_rows = each_once(flat[..., :-1], draw.mask)
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
