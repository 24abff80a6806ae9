"""Two ways through the decoder layers: the model's own modules over the seam, or the lean layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import PreTrainedModel

from dspark.core import PackedBatch
from dspark.target.backends import AttentionBackend, AttentionRule
from dspark.target.seam import Passage
from dspark.target.taps import FeatureTaps


class Body(Protocol):
    """Embedding, decoder layers and final norm."""

    def set_taps(self, layer_ids: Sequence[int]) -> None:
        """Store the outputs of these layers (checked ids, -1 for the embedding) in every run."""
        ...

    def run(self, batch: PackedBatch, backend: AttentionBackend, plan: Any, features: Tensor | None) -> Tensor:
        """Hidden states [T, D] after the final norm; tapped outputs go to ``features`` [T, m * D]."""
        ...


class SeamBody:
    """The model's own modules, with attention replaced by ours. Works for every model that has the seam."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model: nn.Module = model.base_model
        self._taps = FeatureTaps(self._model.layers)  # type: ignore[arg-type]
        self.num_layers = len(self._model.layers)  # type: ignore[arg-type]
        self.rules: dict[int, AttentionRule] = {}

    def set_taps(self, layer_ids: Sequence[int]) -> None:
        """Hook these layers."""
        self._taps.set(layer_ids)

    def run(self, batch: PackedBatch, backend: AttentionBackend, plan: Any, features: Tensor | None) -> Tensor:
        """Run the modules; how each layer attended is kept in ``rules``."""
        passage = Passage(backend=backend, plan=plan, features=features, rules=self.rules)
        output = self._model(
            input_ids=batch.input_ids[None], position_ids=batch.positions[None], use_cache=False, passage=passage
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden
