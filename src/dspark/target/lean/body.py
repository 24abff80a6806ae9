"""All layers in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from dspark.core import PackedBatch
from dspark.target.backends import AttentionBackend
from dspark.target.lean.layer import LeanLayer
from dspark.target.lean.norm import RMSNorm
from dspark.target.lean.rope import RopeTable
from dspark.target.taps import EMBEDDING


class LeanBody:
    """Embedding, decoder layers and final norm of a model, without its modules' overhead."""

    def __init__(
        self, embedding: nn.Module, rotary: nn.Module, ropes: Sequence[str], layers: Sequence[LeanLayer], norm: RMSNorm
    ) -> None:
        self._embedding = embedding
        self._rotary = rotary
        self._ropes = tuple(ropes)
        self._layers = list(layers)
        self._norm = norm
        self._taps: Mapping[int, int] = {}

    def set_taps(self, layer_ids: Sequence[int]) -> None:
        """Store the outputs of these layers; ids were checked before."""
        self._taps = {layer: place for place, layer in enumerate(layer_ids)}

    def run(self, batch: PackedBatch, backend: AttentionBackend, plan: Any, features: Tensor | None) -> Tensor:
        """Hidden states [T, D] after the final norm; tapped outputs go to ``features`` [T, m * D]."""
        x: Tensor = self._embedding(batch.input_ids)
        tables = {kind: self._table(kind, x, batch.positions) for kind in self._ropes}
        self._store(EMBEDDING, x, features)
        for layer in self._layers:
            x = layer(x, tables, backend, plan)
            self._store(layer.index, x, features)
        return self._norm(x)

    def optimise(self) -> None:
        """Merge and reorder all matrices, layer by layer; the model's own matrices are released on the way."""
        for i, layer in enumerate(self._layers):
            self._layers[i] = layer.optimised()

    def _table(self, kind: str, x: Tensor, positions: Tensor) -> RopeTable:
        kinds = (kind,) if kind else ()
        return RopeTable.from_module(*self._rotary(x, positions[None], *kinds))

    def _store(self, layer: int, x: Tensor, features: Tensor | None) -> None:
        place = self._taps.get(layer)
        if place is not None and features is not None:
            width = x.shape[-1]
            features[:, place * width : (place + 1) * width] = x
