"""A Hugging Face causal language model that takes packed batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dspark.core import PackedBatch
from dspark.target.backends import AttentionBackend
from dspark.target.body import Body
from dspark.target.facts import TargetFacts
from dspark.target.lean.linear import Linear
from dspark.target.taps import check_taps


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
    """The target model, run over :class:`PackedBatch` with keys and values in pages. Made by :func:`pack_model`.

    Attributes:
        facts: sizes and habits of the model.
        allocations: how often the pages were made; who made them last owns them.
    """

    def __init__(
        self,
        *,
        body: Body,
        embedding: nn.Embedding,
        head: Linear,
        head_weight: Tensor,
        backend: AttentionBackend,
        facts: TargetFacts,
    ) -> None:
        self.facts = facts
        self._body = body
        self._embedding = embedding
        self._head = head
        self._head_weight = head_weight
        self._backend = backend
        self._tap_layers: tuple[int, ...] = ()
        self.allocations = 0

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, keys and values."""
        return self._embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._embedding.weight.device

    @property
    def page_size(self) -> int:
        """Tokens per page; the backend decides."""
        return self._backend.page_size

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """Layers whose outputs are gathered."""
        return self._tap_layers

    def kv_bytes_per_page(self) -> int:
        """Bytes of keys and values of one page over all layers."""
        facts = self.facts
        return 2 * facts.num_layers * facts.num_kv_heads * facts.head_dim * self.page_size * self.dtype.itemsize

    def weight_bytes(self) -> int:
        """Bytes of the model's weights in its type, each tied matrix counted once."""
        return self.facts.num_parameters * self.dtype.itemsize

    def allocate(self, num_pages: int) -> None:
        """Make room for ``num_pages`` pages of keys and values; earlier contents are lost."""
        self.allocations += 1
        self._backend.allocate(num_pages)

    def set_taps(self, layer_ids: Sequence[int]) -> None:
        """Gather the outputs of these layers in every forward (-1: embedding output, n: raw output of layer n).

        Raises:
            InputError: an id outside -1 .. num_layers - 1, or a repeated one.
        """
        self._tap_layers = check_taps(layer_ids, self.facts.num_layers)
        self._body.set_taps(self._tap_layers)

    @torch.no_grad()
    def forward(self, batch: PackedBatch, *, want_hidden: bool = False) -> TargetOutput:
        """Run all rows through the model, storing their keys and values in the slots of the batch.

        Args:
            batch: the rows; every slot and page must lie inside what was allocated.
            want_hidden: also return the hidden states after the final norm.
        """
        features = self._feature_buffer(batch.num_rows)
        hidden = self._body.run(batch, self._backend, self._backend.plan(batch), features)
        rows = hidden if batch.logit_rows.shape[0] == batch.num_rows else hidden[batch.logit_rows]
        return TargetOutput(logits=self.lm_head(rows), features=features, last_hidden=hidden if want_hidden else None)

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings [..., D] of token ids, the family's own scaling included."""
        embedded: Tensor = self._embedding(ids)
        return embedded

    @torch.no_grad()
    def lm_head(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden states after the final norm, soft-cap included.

        On CPUs this is much faster than a product with :meth:`lm_head_weight`; use that one only where gradients flow.
        """
        logits = self._head(hidden)
        cap = self.facts.logit_softcap
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)

    def lm_head_weight(self) -> Tensor:
        """[V, D] output matrix."""
        return self._head_weight

    def embed_weight(self) -> Tensor:
        """[V, D] embedding matrix, without the family's own scaling."""
        return self._embedding.weight

    def _feature_buffer(self, num_rows: int) -> Tensor | None:
        if not self.tap_layers:
            return None
        width = len(self.tap_layers) * self.facts.hidden_size
        return torch.empty((num_rows, width), dtype=self.dtype, device=self.device)
