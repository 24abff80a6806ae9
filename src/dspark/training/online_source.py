"""Hidden states from the target itself, which runs beside the trainer: nothing is cached."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec
from dspark.data.grouping import consecutive_groups
from dspark.target import LoadedTarget
from dspark.training.capture import Capture, check_corpus
from dspark.training.features import ROWS_PER_FORWARD
from dspark.training.source import Fetched


class OnlineSource:
    """A :class:`dspark.training.source.FeatureSource` that computes what is asked for; the default of training.

    Memory is bounded by the forward: at most ``rows_per_forward`` tokens (or one longer sequence) go through the target
    at a time, and logits over the vocabulary exist for a few teacher rows at a time only.
    """

    def __init__(
        self,
        loaded: LoadedTarget,
        corpus: Corpus,
        tap_layers: Sequence[int],
        *,
        rows_per_forward: int = ROWS_PER_FORWARD,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set the target up.

        Args:
            loaded: the target, in any floating type; its taps and its KV pool are set when it runs.
            corpus: what will be asked for.
            tap_layers: layers to tap.
            rows_per_forward: tokens per forward; a longer sequence goes alone.
            dtype: type of the features and last hidden states that are handed out, None for the target's own.

        Raises:
            InputError: taps that the target does not have, or sequences that it cannot run.
        """
        self._capture = Capture(loaded.target, tap_layers)
        check_corpus(corpus, loaded.target.facts)
        self._corpus, self._rows, self._dtype = corpus, rows_per_forward, dtype or loaded.target.dtype
        self._spec = FeatureSpec(
            target=loaded.name,
            hidden_size=loaded.target.facts.hidden_size,
            tap_layers=self._capture.tap_layers,
        )
        self._one_at_a_time = threading.Lock()

    @property
    def corpus(self) -> Corpus:
        """Ids, masks and facts of all sequences."""
        return self._corpus

    @property
    def spec(self) -> FeatureSpec:
        """What the rows of features are."""
        return self._spec

    def fetch(self, sequences: np.ndarray, teacher_rows: np.ndarray) -> Fetched:
        """Run the target over these sequences; see :class:`dspark.training.source.FeatureSource`.

        The result lies on the target's device.
        """
        lengths = self._corpus.lengths[sequences]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        with self._one_at_a_time:
            parts = [
                self._forward(sequences[start:stop], teacher_rows, int(ends[start]), int(ends[stop]))
                for start, stop in consecutive_groups(lengths, self._rows)
            ]
        features, hidden, log_z = (torch.cat(part) for part in zip(*parts, strict=True))
        return Fetched(features=features, hidden=hidden, log_z=log_z)

    def _forward(
        self, sequences: np.ndarray, teacher_rows: np.ndarray, start: int, stop: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features, and teacher of those rows that are among the packed rows ``start .. stop - 1`` of this forward."""
        features, hidden = self._capture.run([self._corpus.ids_of(index) for index in sequences])
        own = teacher_rows[(teacher_rows >= start) & (teacher_rows < stop)] - start
        teacher = hidden[torch.from_numpy(own).to(hidden.device)].to(self._dtype)
        return features.to(self._dtype), teacher, self._capture.log_denominators(teacher)
