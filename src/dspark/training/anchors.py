"""Which positions blocks start from, and the order in which sequences are seen."""

from __future__ import annotations

import zlib

import numpy as np

from dspark.core import InputError
from dspark.data.corpus import Corpus


def anchor_candidates(mask: np.ndarray) -> np.ndarray:
    """Positions a with both a and a + 1 inside the loss mask [t] -> [c] int64, increasing."""
    return np.flatnonzero(mask[:-1] & mask[1:])


def slots_that_count(mask: np.ndarray, anchors: np.ndarray, block_size: int) -> np.ndarray:
    """Slots whose label, and all labels before it in the block, are inside the loss mask: [A] -> [A, G] bool."""
    labels = anchors[:, None] + 1 + np.arange(block_size)
    inside = (labels < len(mask)) & mask[np.minimum(labels, len(mask) - 1)]
    return np.logical_and.accumulate(inside, axis=1)


def drawn_anchors(corpus: Corpus, sequence: int, key: tuple[int, ...], count: int) -> np.ndarray:
    """Up to ``count`` different anchors of a sequence: int64, in random order, a function of (key, sequence) alone.

    An empty key draws nothing: it takes the first ones, in order.
    """
    candidates = anchor_candidates(corpus.mask_of(sequence))
    if not key:
        return candidates[:count]
    return np.random.default_rng((*key, sequence)).permutation(candidates)[:count]


def hold_back(corpus: Corpus, usable: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Split usable sequences [n] into those held back for validation [count] and the rest, both increasing.

    A draw by content: it depends neither on the seed nor on the order of the files, so that runs can be compared and a
    run over more data of the same kind hardly touches what an earlier one held back.
    """
    marks = [zlib.crc32(np.ascontiguousarray(corpus.ids_of(int(index))).tobytes()) for index in usable]
    order = np.lexsort((usable, np.array(marks, np.int64)))
    return np.sort(usable[order[:count]]), np.sort(usable[order[count:]])


class Epochs:
    """The sequences of every step; each epoch in a new order.

    Those of step s depend on (seed, s) alone, so a resumed run sees exactly what an uninterrupted one would.
    """

    def __init__(self, sequences: np.ndarray, per_step: int, seed: int) -> None:
        """Plan.

        Raises:
            InputError: fewer sequences than one step needs.
        """
        if len(sequences) < per_step:
            raise InputError(
                f"a step needs {per_step} usable sequences, the data has {len(sequences)}; synthesise more"
            )
        self._sequences, self._per_step, self._seed = sequences, per_step, seed
        self._epoch, self._order = -1, sequences

    def at(self, step: int) -> np.ndarray:
        """Sequence indices [per_step] of a 0-based step."""
        epoch, within = divmod(step, len(self._sequences) // self._per_step)
        if epoch != self._epoch:
            self._order = np.random.default_rng((self._seed, 1, epoch)).permutation(self._sequences)
            self._epoch = epoch
        return self._order[within * self._per_step : (within + 1) * self._per_step]
