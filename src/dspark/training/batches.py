"""Training batches: a few anchors from each of many sequences, packed without padding (paper section 3).

Legend: N sequences of the batch, T their tokens together, S longest of them, A anchors per sequence, G slots.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from dspark.core import InputError
from dspark.data.feature_store import FeatureStore
from dspark.drafters.dspark.training_batch import DraftTrainingBatch, padding


def anchor_candidates(mask: np.ndarray) -> np.ndarray:
    """Positions a with both a and a + 1 inside the loss mask [t] -> [c] int64, increasing."""
    return np.flatnonzero(mask[:-1] & mask[1:])


def slots_that_count(mask: np.ndarray, anchors: np.ndarray, block_size: int) -> np.ndarray:
    """Slots whose label, and all labels before it in the block, are inside the loss mask: [A] -> [A, G] bool."""
    labels = anchors[:, None] + 1 + np.arange(block_size)
    inside = (labels < len(mask)) & mask[np.minimum(labels, len(mask) - 1)]
    return np.logical_and.accumulate(inside, axis=1)


class BatchBuilder:
    """Cuts batches out of a feature store."""

    def __init__(self, store: FeatureStore, *, block_size: int, anchors_per_sequence: int) -> None:
        self.store, self.block_size, self.anchors_per_sequence = store, block_size, anchors_per_sequence
        self._masks = [
            store.mask[start:stop].numpy() for start, stop in zip(store.offsets[:-1], store.offsets[1:], strict=True)
        ]
        self._candidates = [anchor_candidates(mask) for mask in self._masks]

    def usable(self, sequences: np.ndarray) -> np.ndarray:
        """Those of the sequence indices [n] that have at least one anchor candidate."""
        return np.array([index for index in sequences if len(self._candidates[index])], dtype=np.int64)

    def build(self, sequences: np.ndarray, rng: np.random.Generator) -> DraftTrainingBatch:
        """Draw anchors uniformly without replacement from each of the sequences [N] and assemble the batch."""
        store, g = self.store, self.block_size
        lengths = store.lengths[sequences]
        starts = store.offsets[sequences]
        rows = np.concatenate([np.arange(start, start + size) for start, size in zip(starts, lengths, strict=True)])
        anchors, mask = self._draw_anchors(sequences, rng)
        flat = starts[:, None, None] + np.minimum(anchors[:, :, None] + np.arange(g + 1), lengths[:, None, None] - 1)
        gather, keys = padding(lengths)
        taught, places = np.unique(flat[..., :-1], return_inverse=True)
        return DraftTrainingBatch(
            features=store.features(rows),
            positions=torch.from_numpy(np.concatenate([np.arange(size) for size in lengths])),
            gather=torch.from_numpy(gather),
            key_positions=torch.from_numpy(keys),
            anchors=torch.from_numpy(anchors),
            tokens=store.ids[torch.from_numpy(flat)],
            teacher_hidden=store.hidden(taught),
            log_z=store.log_z[torch.from_numpy(taught)],
            teacher_rows=torch.from_numpy(places.reshape(mask.shape)),
            mask=torch.from_numpy(mask),
        )

    def _draw_anchors(self, sequences: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Anchors [N, A] and slot mask [N, A, G]; rows short of candidates are filled with masked dummies."""
        n, a = len(sequences), self.anchors_per_sequence
        anchors, mask = np.zeros((n, a), np.int64), np.zeros((n, a, self.block_size), bool)
        for row, index in enumerate(sequences):
            candidates = self._candidates[index]
            drawn = rng.permutation(candidates)[:a]
            anchors[row, : len(drawn)] = drawn
            mask[row, : len(drawn)] = slots_that_count(self._masks[index], drawn, self.block_size)
        return anchors, mask


def shuffled_epochs(sequences: np.ndarray, per_step: int, seed: int, start_step: int) -> Iterator[np.ndarray]:
    """Yield the sequence indices of step start_step, start_step + 1, ..., forever; every epoch in a new order.

    The order of step s depends on (seed, s) alone, so a resumed run sees exactly what an uninterrupted one would.

    Raises:
        InputError: fewer sequences than one step needs.
    """
    if len(sequences) < per_step:
        raise InputError(f"a step needs {per_step} usable sequences, the data has {len(sequences)}; synthesise more")
    steps_per_epoch = len(sequences) // per_step
    step = start_step
    while True:
        epoch, within = divmod(step, steps_per_epoch)
        order = np.random.default_rng((seed, 1, epoch)).permutation(sequences)
        yield order[within * per_step : (within + 1) * per_step]
        step += 1
