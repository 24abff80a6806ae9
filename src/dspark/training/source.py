"""Where training gets the target's hidden states from.

Legend: T tokens of the sequences asked for, U teacher rows among them, m tapped layers, D hidden size of the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """What the target computed for a few sequences, packed one after the other.

    Attributes:
        features: [T, m * D] tapped layers of every token, in a floating type of the source's choice.
        hidden: [U, D] last hidden state (after the final norm) at the teacher rows.
        log_z: [U] float32 log of the softmax denominator over the full vocabulary there, final soft-cap included.
    """

    features: Tensor
    hidden: Tensor
    log_z: Tensor


class FeatureSource(Protocol):
    """Hidden states of a corpus, computed when asked for or read from disk.

    Repeated calls give the same numbers, whatever was asked for in between; calls from several threads are safe.
    """

    @property
    def corpus(self) -> Corpus:
        """Ids, masks and facts of all sequences, in memory."""
        ...

    @property
    def spec(self) -> FeatureSpec:
        """What the rows of features are."""
        ...

    def fetch(self, sequences: np.ndarray, teacher_rows: np.ndarray) -> Fetched:
        """Features of some sequences, and the teacher at some of their rows.

        Args:
            sequences: [n] indices into the corpus.
            teacher_rows: [U] int64 rows of the packed sequences (as in ``corpus.rows(sequences)``), increasing, no
                row twice.
        """
        ...
