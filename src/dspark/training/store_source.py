"""Hidden states from feature stores on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec
from dspark.data.feature_store import FeatureStore
from dspark.target import PackedTarget
from dspark.training.capture import Capture
from dspark.training.source import Fetched

_TRIED_TOKENS = 256
_DIFFERENCE = 0.1
"""Median over tokens of the relative distance between stored and computed; another number type gives 0.01 to 0.04."""


class StoreSource:
    """A :class:`dspark.training.source.FeatureSource` that reads memory-mapped stores; everything comes in bfloat16."""

    def __init__(self, stores: Sequence[Path]) -> None:
        """Open stores of the same target and taps; they count as one.

        Raises:
            InputError: see :class:`FeatureStore`.
        """
        self._store, self._stores = FeatureStore(stores), tuple(stores)

    @property
    def corpus(self) -> Corpus:
        """Ids, masks and facts of all sequences."""
        return self._store.corpus

    @property
    def spec(self) -> FeatureSpec:
        """What the rows of features are."""
        return self._store.spec

    def fetch(self, sequences: np.ndarray, teacher_rows: np.ndarray) -> Fetched:
        """Read the rows of these sequences; see :class:`dspark.training.source.FeatureSource`."""
        rows = self.corpus.rows(sequences)
        teacher = rows[teacher_rows]
        return Fetched(
            features=self._store.features(rows),
            hidden=self._store.hidden(teacher),
            log_z=self._store.log_z[torch.from_numpy(teacher)],
        )

    def check_target(self, target: PackedTarget) -> None:
        """See that the features are those of this target, by running it over the beginning of the first sequence.

        Names do not tell: a folder may have been renamed, or the model in it trained further.

        Raises:
            InputError: they are not.
        """
        capture = Capture(target, self.spec.tap_layers)
        ids = self.corpus.ids_of(0)[:_TRIED_TOKENS]
        if int(ids.max()) < target.facts.vocab_size and self.spec.hidden_size == target.facts.hidden_size:
            _, hidden = capture.run([ids])
            stored, got = self._store.hidden(np.arange(len(ids))).float(), hidden.float().cpu()
            if float(((stored - got).norm(dim=1) / got.norm(dim=1)).median()) <= _DIFFERENCE:
                return
        raise InputError(
            f"the features in {self._stores[0]} are those of another target ({self.spec.target}) than the one given; "
            "write the store again"
        )
