"""The drafter's layers in serving form: one block per request over paged context, with merged weight matrices.

Computes what :meth:`DSparkModel.blocks` computes for A = 1. The keys and values of a request's block are put right
behind its gathered context, so that one product serves both.
Legend: R requests, G slots, D hidden, H query heads, K key/value heads, E head size, L layers, S gathered keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dspark.drafters.dspark.backbone import BlockAttention, DraftLayer, RMSNorm
from dspark.drafters.dspark.block_plan import BlockPlan, Tile
from dspark.drafters.dspark.context_store import ContextStore
from dspark.drafters.dspark.experts import GatedMLP, MixtureOfExperts, mix_experts, route
from dspark.drafters.dspark.frozen_linear import FrozenLinear
from dspark.drafters.dspark.merged_projections import MergedProjections
from dspark.drafters.dspark.model import DSparkModel
from dspark.drafters.dspark.rotary_table import RotaryRows


class FusedAttention:
    """Attention of blocks, with merged projections."""

    def __init__(self, attention: BlockAttention) -> None:
        self._project = MergedProjections(attention)
        self._heads, self._kv_heads, self._head_dim = attention.heads, attention.kv_heads, attention.head_dim
        self._group = attention.heads // attention.kv_heads

    def __call__(
        self, x: Tensor, residual: Tensor, plan: BlockPlan, rotary: RotaryRows, gather: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Attend to context and block.

        Args:
            x: [R * G, D] normed slot states.
            residual: [R * G, D] added to the result.
            plan: where keys lie and what is seen.
            rotary: rotation of the slots.
            gather: pages [p] -> this layer's context in them, [2, K, p * page_size, E].

        Returns:
            [R * G, D].
        """
        qk, values = self._project(x, rotary)
        block = len(x) // plan.num_requests
        queries = qk[:, : self._heads].view(-1, block, self._kv_heads, self._group, self._head_dim)
        queries = queries.permute(2, 0, 3, 1, 4)  # [K, R, group, G, E]
        own = torch.stack([qk[:, self._heads :], values]).transpose(1, 2)  # [2, K, R * G, E]
        mixed = [self._attend(queries[:, t.requests], own[:, :, t.block_rows], t, gather(t.pages)) for t in plan.tiles]
        return self._project.out(torch.cat(mixed), add=residual)

    def _attend(self, queries: Tensor, own: Tensor, tile: Tile, kv: Tensor) -> Tensor:
        """One tile: queries [K, n, group, G, E], own [2, K, n * G, E], kv [2, K, n * S, E] -> [n * G, H * E]."""
        kv.index_fill_(2, tile.unused, 0.0)
        kv.index_copy_(2, tile.own, own)
        keys, values = kv.view(2, -1, kv.shape[2] // tile.num_requests, self._head_dim)  # [K * n, S, E]
        scores = torch.bmm(queries.reshape(len(keys), -1, self._head_dim), keys.transpose(1, 2))
        scores.view(*queries.shape[:-1], -1)[..., tile.first_biased :] += tile.bias
        mixed = torch.bmm(torch.softmax(scores, dim=-1), values).view(queries.shape)
        return mixed.permute(1, 3, 0, 2, 4).reshape(own.shape[2], -1)


class FusedMLP:
    """SiLU-gated feed-forward with gate and up in one product."""

    def __init__(self, mlp: GatedMLP) -> None:
        self._gate_up = FrozenLinear(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]))
        self._down = FrozenLinear(mlp.down_proj.weight)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, D] normed states, and the residual stream to add if any -> [n, D]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(F.silu(gate) * up, add=residual)


class FusedExperts:
    """Mixture of experts; only experts with rows are called."""

    def __init__(self, mixture: MixtureOfExperts) -> None:
        self._gate = FrozenLinear(mixture.gate.weight)
        self._per_row, self._normalise = mixture.per_row, mixture.normalise
        self._experts = [FusedMLP(cast(GatedMLP, expert)) for expert in mixture.experts]

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        """[n, D] normed states and the residual stream to add -> [n, D]."""
        routing = route(self._gate(x), self._per_row, self._normalise)
        return mix_experts(x, routing, self._experts, idle=False).add_(residual)


class FusedLayer:
    """One draft layer."""

    def __init__(self, layer: DraftLayer) -> None:
        self._input_norm, self._mlp_norm = layer.input_layernorm, layer.post_attention_layernorm
        self._attention = FusedAttention(layer.self_attn)
        self._mlp = FusedMLP(layer.mlp) if isinstance(layer.mlp, GatedMLP) else FusedExperts(layer.mlp)

    def __call__(self, x: Tensor, plan: BlockPlan, rotary: RotaryRows, gather: Callable[[Tensor], Tensor]) -> Tensor:
        """Advance the residual stream [R * G, D]; arguments as in FusedAttention."""
        x = self._attention(self._input_norm(x), x, plan, rotary, gather)
        return self._mlp(self._mlp_norm(x), x)


class FusedContext:
    """Tapped target features to the context keys and values of all layers, in two products."""

    def __init__(self, model: DSparkModel) -> None:
        attentions = [layer.self_attn for layer in model.draft_layers()]
        self._fuse, self._norm = FrozenLinear(model.fc.weight), model.hidden_norm
        self._kv = FrozenLinear(torch.cat([w.weight for a in attentions for w in (a.k_proj, a.v_proj)]))
        self._k_norm = torch.stack([a.k_norm.weight for a in attentions])[:, None]  # [L, 1, E]
        self._shape = (len(attentions), 2, model.config.num_key_value_heads, model.config.head_dim)
        self._eps = model.config.rms_norm_eps

    def __call__(self, features: Tensor, rotary: RotaryRows) -> Tensor:
        """[n, m * D] and the rotation of the rows -> [L, 2, K, n, E]."""
        kv = self._kv(self._norm(self._fuse(features))).view(-1, *self._shape)
        keys = F.rms_norm(kv[:, :, 0], kv.shape[-1:], None, self._eps) * self._k_norm  # [n, L, K, E]
        keys = rotary.rotate(keys.flatten(1, 2)).view_as(keys)
        return torch.stack([keys, kv[:, :, 1]]).permute(2, 0, 3, 1, 4)


class FusedBackbone:
    """All draft layers over a context store."""

    def __init__(self, model: DSparkModel) -> None:
        self._layers = [FusedLayer(layer) for layer in model.draft_layers()]
        self._norm: RMSNorm = model.norm

    def __call__(self, embedded: Tensor, plan: BlockPlan, rotary: RotaryRows, store: ContextStore) -> Tensor:
        """Final hidden states [R, G, D] of the blocks whose input embeddings are [R, G, D], both in plan order."""
        x = embedded.flatten(0, 1)
        for index, layer in enumerate(self._layers):
            x = layer(x, plan, rotary, partial(store.gather, index))
        hidden: Tensor = self._norm(x)
        return hidden.view_as(embedded)
