"""A Hugging Face causal language model that takes packed batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dspark.core import InputError, PackedBatch
from dspark.target.backends import AttentionBackend, AttentionRule
from dspark.target.facts import TargetFacts
from dspark.target.seam import Passage
from dspark.target.taps import FeatureTaps


@dataclass(frozen=True, kw_only=True)
class TargetOutput:
    """Result of one packed forward. N logit rows, T rows, m taps.

    Attributes:
        logits: [N, V] of the batch's logit rows, final soft-cap included.
        features: [T, m * D] tapped layer outputs in tap order; None without taps.
        last_hidden: [T, D] after the final norm; None unless asked for.
    """

    logits: Tensor
    features: Tensor | None = None
    last_hidden: Tensor | None = None


class PackedTarget:
    """The target model, run over :class:`PackedBatch` with keys and values in pages. Made by :func:`pack_model`."""

    def __init__(self, model: PreTrainedModel, backend: AttentionBackend, facts: TargetFacts) -> None:
        self.model = model
        self.backend = backend
        self.facts = facts
        self._body: nn.Module = model.base_model
        self._head: nn.Module = model.get_output_embeddings()
        self._embedding: nn.Module = model.get_input_embeddings()
        self._taps = FeatureTaps(self._body.layers)  # type: ignore[arg-type]
        self.attention_rules: dict[int, AttentionRule] = {}

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, keys and values."""
        return self.embed_weight().dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed_weight().device

    @property
    def page_size(self) -> int:
        """Tokens per page; the backend decides."""
        return self.backend.page_size

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """Layers whose outputs are gathered."""
        return self._taps.layer_ids

    def kv_bytes_per_page(self) -> int:
        """Bytes of keys and values of one page over all layers."""
        facts = self.facts
        return 2 * facts.num_layers * facts.num_kv_heads * facts.head_dim * self.page_size * self.dtype.itemsize

    def allocate(self, num_pages: int) -> None:
        """Make room for ``num_pages`` pages of keys and values; earlier contents are lost."""
        self.backend.allocate(num_pages)

    def set_taps(self, layer_ids: Sequence[int]) -> None:
        """Gather the outputs of these layers in every forward (-1: embedding output, n: raw output of layer n).

        Raises:
            InputError: an id outside -1 .. num_layers - 1, or a repeated one.
        """
        self._taps.set(layer_ids)

    @torch.no_grad()
    def forward(self, batch: PackedBatch, *, want_hidden: bool = False) -> TargetOutput:
        """Run all rows through the model, storing their keys and values in the slots of the batch.

        Args:
            batch: the rows; every slot and page must lie inside what was allocated.
            want_hidden: also return the hidden states after the final norm.
        """
        features = self._feature_buffer(batch.num_rows)
        passage = Passage(
            backend=self.backend, plan=self.backend.plan(batch), features=features, rules=self.attention_rules
        )
        hidden = self._body(
            input_ids=batch.input_ids[None], position_ids=batch.positions[None], use_cache=False, passage=passage
        ).last_hidden_state[0]
        rows = hidden if batch.logit_rows.shape[0] == batch.num_rows else hidden[batch.logit_rows]
        return TargetOutput(logits=self.lm_head(rows), features=features, last_hidden=hidden if want_hidden else None)

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings [..., D] of token ids, the family's own scaling included."""
        embedded: Tensor = self._embedding(ids)
        return embedded

    @torch.no_grad()
    def lm_head(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden states after the final norm, soft-cap included."""
        logits: Tensor = self._head(hidden)
        cap = self.facts.logit_softcap
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)

    def lm_head_weight(self) -> Tensor:
        """[V, D] output matrix."""
        return self._head.weight  # type: ignore[return-value]

    def embed_weight(self) -> Tensor:
        """[V, D] embedding matrix, without the family's own scaling."""
        return embedding_weight(self.model)

    def _feature_buffer(self, num_rows: int) -> Tensor | None:
        if not self.tap_layers:
            return None
        width = len(self.tap_layers) * self.facts.hidden_size
        return torch.empty((num_rows, width), dtype=self.dtype, device=self.device)


def embedding_weight(model: PreTrainedModel) -> Tensor:
    """[V, D] embedding matrix of a model."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def check_parts(model: PreTrainedModel, facts: TargetFacts) -> None:
    """Refuse models whose parts are not where a packed forward needs them.

    Raises:
        InputError: names the missing part.
    """
    layers = getattr(model.base_model, "layers", None)
    found = len(layers) if isinstance(layers, nn.ModuleList) else 0
    if found != facts.num_layers or model.base_model is model:
        raise InputError(f"{type(model).__name__} has {found} decoder layers in .layers, expected {facts.num_layers}")
    if model.get_output_embeddings() is None:
        raise InputError(f"{type(model).__name__} has no LM head; expected a causal language model")
