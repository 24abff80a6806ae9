"""Eagle3 in training: the blocks that a parallel drafter would learn from, unrolled token by token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dspark.drafters.dspark.training_batch import padding
from dspark.drafters.eagle3 import Eagle3Checkpoint, Eagle3Config, Eagle3Model, load_checkpoint, save_checkpoint
from dspark.drafters.eagle3.objective import Eagle3Objective, step_weights
from dspark.drafters.eagle3.training_batch import Eagle3TrainingBatch, shifted, steps_that_count, tokens_ahead
from dspark.drafters.losses import FrozenTarget, LossWeights
from dspark.training.anchors import anchor_candidates, drawn_anchors, slots_that_count
from dspark.training.tapped_trainee import TappedTrainee, each_once


@dataclass(frozen=True, kw_only=True)
class RowDraw:
    """Rows of some sequences.

    Attributes:
        sequences: [N] int64.
        rows: [N, A] int64, each one before an anchor; dummies where a sequence has fewer candidates.
        taught: [N, A, G] bool steps that the loss counts.
        judged: [N, A, G] bool steps whose acceptance counts: those of the block after the anchor.
    """

    sequences: np.ndarray
    rows: np.ndarray
    taught: np.ndarray
    judged: np.ndarray


class Eagle3Trainee(TappedTrainee):
    """A drafter of one layer, its data and its losses."""

    config: Eagle3Config
    may_differ = frozenset({"max_position_embeddings", "step_loss_decay"})

    def _build(self) -> Eagle3Model:
        return Eagle3Model(self.config)

    def _objective(self, model: nn.Module, target: FrozenTarget, loss: LossWeights) -> Eagle3Objective:
        assert isinstance(model, Eagle3Model)
        return Eagle3Objective(model, target, loss)

    def _read(self, folder: Path) -> Eagle3Checkpoint:
        return load_checkpoint(folder)

    def _write(self, folder: Path, model: nn.Module, vocabulary: Tensor | None) -> None:
        assert isinstance(model, Eagle3Model)
        save_checkpoint(folder, Eagle3Checkpoint(model=model, draft_to_target=vocabulary))

    def usable(self, sequences: np.ndarray) -> np.ndarray:
        """Those with at least one anchor that has a token before it."""
        masks = (self._corpus.mask_of(sequence) for sequence in sequences)
        return sequences[[bool((anchor_candidates(mask) > 0).any()) for mask in masks]]

    def draw(
        self, sequences: np.ndarray, key: tuple[int, ...], anchors_per_sequence: int, block_size: int | None = None
    ) -> RowDraw:
        """Draw the anchors that a parallel drafter would draw from the sequences [N], and take the rows before them."""
        steps = block_size or self.config.ttt_length
        shape = (len(sequences), anchors_per_sequence)
        rows = np.zeros(shape, np.int64)
        taught, judged = np.zeros((*shape, steps), bool), np.zeros((*shape, steps), bool)
        for place, sequence in enumerate(sequences.tolist()):
            mask, anchors = self._corpus.mask_of(sequence), drawn_anchors(self._corpus, sequence, key, shape[1])
            anchors = anchors[anchors > 0]
            drawn = slice(0, len(anchors))
            rows[place, drawn] = anchors - 1
            taught[place, drawn] = steps_that_count(mask, anchors - 1, steps)
            judged[place, drawn] = slots_that_count(mask, anchors, steps)
        return RowDraw(sequences=sequences, rows=rows, taught=taught, judged=judged)

    def weight(self, draw: RowDraw) -> float:
        """Sum of the weights of all steps that the loss counts."""
        return float(step_weights(torch.from_numpy(draw.taught), self.config.step_loss_decay).double().sum())

    def batch(self, draw: RowDraw) -> Eagle3TrainingBatch:
        """Fetch features and teacher rows of the drawn rows."""
        lengths, steps = self._corpus.lengths[draw.sequences], draw.taught.shape[-1]
        firsts = np.cumsum(lengths) - lengths
        chosen = draw.taught | draw.judged
        ahead = firsts[:, None, None] + draw.rows[..., None] + 1 + np.arange(steps)  # rows of the packed sequences
        needed, teacher_rows = each_once(ahead, chosen)
        fetched = self._source.fetch(draw.sequences, needed)
        ids = self._corpus.ids[self._corpus.rows(draw.sequences)]
        gather, keys = padding(lengths)
        read, labels = tokens_ahead(ids, lengths, draw.rows, steps)
        return Eagle3TrainingBatch(
            features=fetched.features,
            following=torch.from_numpy(shifted(ids, lengths)),
            positions=torch.from_numpy(np.concatenate([np.arange(size) for size in lengths])),
            gather=torch.from_numpy(gather),
            key_positions=torch.from_numpy(keys),
            rows=torch.from_numpy(draw.rows),
            packed_rows=torch.from_numpy(firsts[:, None] + draw.rows),
            read=torch.from_numpy(read),
            labels=torch.from_numpy(labels),
            teacher_hidden=fetched.hidden,
            log_z=fetched.log_z,
            teacher_rows=torch.from_numpy(teacher_rows),
            taught=torch.from_numpy(draw.taught),
            judged=torch.from_numpy(draw.judged),
        ).to(self._device)
