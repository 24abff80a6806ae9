"""Eagle3 in training: the blocks that a parallel drafter would learn from, unrolled token by token."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dspark.core import InputError
from dspark.drafters.dspark.training_batch import padding
from dspark.drafters.eagle3 import Eagle3Checkpoint, Eagle3Config, Eagle3Model, load_checkpoint, save_checkpoint
from dspark.drafters.eagle3.objective import Eagle3Objective, step_weights
from dspark.drafters.eagle3.training_batch import Eagle3TrainingBatch, shifted, steps_that_count, tokens_ahead
from dspark.drafters.losses import LossWeights
from dspark.training.anchors import anchor_candidates, drawn_anchors, slots_that_count
from dspark.training.prepare import choose_draft_vocabulary, feature_scale, frozen_target
from dspark.training.trainee import Setting

_MAY_DIFFER = {"max_position_embeddings", "step_loss_decay"}


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


class Eagle3Trainee:
    """A drafter of one layer, its data and its losses."""

    muon_prefixes = ("model.layers.", "model.fc.")

    def __init__(self, config: Eagle3Config, setting: Setting) -> None:
        """Begin with fresh weights, or with those of ``setting.init_from``.

        Raises:
            InputError: a checkpoint of other shapes.
        """
        self.config, self._source, self._device = config, setting.source, setting.device
        self._corpus = setting.source.corpus
        start = None if setting.init_from is None else _fitting_checkpoint(setting.init_from, config)
        self._vocabulary, self._scale = self._settle(start, setting)
        model = initialise(config, setting.seed) if start is None else _unfolded(start.model, self._scale)
        target = frozen_target(
            setting.borrowed, self._vocabulary, self._scale, dtype=setting.dtype, device=setting.device
        )
        self.module = Eagle3Objective(model.to(setting.device), target, setting.loss)

    def _settle(self, start: Eagle3Checkpoint | None, setting: Setting) -> tuple[Tensor, Tensor]:
        """Draft vocabulary and feature scale: those of the run taken up, else of the checkpoint, else of the data."""
        if setting.extras is not None:
            return setting.extras["vocabulary"], setting.extras["feature_scale"]
        config, known = self.config, None if start is None else start.draft_to_target
        if known is None:
            known = choose_draft_vocabulary(self._corpus, config.vocab_size, config.draft_vocab_size)
        return known, feature_scale(self._source)

    def usable(self, sequences: np.ndarray) -> np.ndarray:
        """Those with at least one anchor that has a token before it."""
        masks = (self._corpus.mask_of(sequence) for sequence in sequences)
        return sequences[[bool((anchor_candidates(mask) > 0).any()) for mask in masks]]

    def draw(self, sequences: np.ndarray, key: tuple[int, ...], anchors_per_sequence: int) -> RowDraw:
        """Draw the anchors that a parallel drafter would draw from the sequences [N], and take the rows before them."""
        steps = self.config.ttt_length
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
        lengths, steps = self._corpus.lengths[draw.sequences], self.config.ttt_length
        firsts = np.cumsum(lengths) - lengths
        chosen = draw.taught | draw.judged
        ahead = firsts[:, None, None] + draw.rows[..., None] + 1 + np.arange(steps)  # rows of the packed sequences
        needed, places = np.unique(ahead[chosen], return_inverse=True)
        teacher_rows = np.zeros(chosen.shape, np.int64)
        teacher_rows[chosen] = places
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

    def set_loss(self, weights: LossWeights) -> None:
        """From now on use these weights (their decay by slot does not apply; the configuration has one by step)."""
        self.module.factors = weights

    def extras(self) -> Mapping[str, Tensor]:
        """The draft vocabulary [Vd] and the feature scale [m * D]."""
        return {"vocabulary": self._vocabulary, "feature_scale": self._scale}

    def export(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write the drafter in bfloat16, feature scale folded in, without embedding and LM head (the target's)."""
        model = Eagle3Model(self.config)
        model.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})
        with torch.no_grad():
            model.fc.weight.mul_(self._scale)
        reduced = self.config.draft_vocab_size is not None
        save_checkpoint(folder, Eagle3Checkpoint(model=model, draft_to_target=self._vocabulary if reduced else None))


def initialise(config: Eagle3Config, seed: int) -> Eagle3Model:
    """A fresh drafter in float32: small normal weights, unit norms but for the last one.

    The last norm starts small, so that a fresh drafter is not sure of anything.
    """
    torch.manual_seed(seed)
    model = Eagle3Model(config)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
    nn.init.constant_(model.norm.weight, 0.3)
    nn.init.normal_(model.fc.weight, std=model.fc.in_features**-0.5)
    return model


def _fitting_checkpoint(folder: Path, config: Eagle3Config) -> Eagle3Checkpoint:
    """Read a checkpoint to go on from; InputError if it is not of the run's shapes."""
    start = load_checkpoint(folder)
    for field in fields(config):
        got, wanted = getattr(start.config, field.name), getattr(config, field.name)
        if got != wanted and field.name not in _MAY_DIFFER:
            raise InputError(f"{folder} has {field.name} {got}, the run's drafter {wanted}; set drafter.{field.name}")
    return start


def _unfolded(model: Eagle3Model, scale: Tensor) -> Eagle3Model:
    """Training weights in float32 of an exported drafter: ``fc`` reads scaled features again."""
    trained = copy.deepcopy(model).float()
    with torch.no_grad():
        trained.fc.weight.div_(scale)
    return trained
