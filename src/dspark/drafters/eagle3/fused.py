"""The drafter's layer in serving form: one row per request and step, over gathered context, with merged matrices.

Computes what :meth:`Eagle3Model.unroll` computes for one row per request.
Legend: R requests, n rows, D hidden, H query heads, K key/value heads, E head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.drafters.dspark.frozen_linear import FrozenLinear
from dspark.drafters.dspark.fused import FusedMLP
from dspark.drafters.dspark.merged_projections import MergedProjections
from dspark.drafters.dspark.rotary_table import RotaryRows
from dspark.drafters.eagle3.chain_plan import ChainPlan, Tile
from dspark.drafters.eagle3.model import Eagle3Attention, Eagle3Layer, Eagle3Model


class FusedContext:
    """Rows of fused features and token embeddings to context keys and values."""

    def __init__(self, model: Eagle3Model) -> None:
        attention = model.layer.self_attn
        self._layer = model.layer
        self._kv = FrozenLinear(torch.cat([attention.k_proj.weight, attention.v_proj.weight]))
        self._k_norm = attention.k_norm
        self._shape = (2, attention.kv_heads, attention.head_dim)

    def __call__(self, fused: Tensor, embedded: Tensor, rotary: RotaryRows) -> Tensor:
        """[n, D], [n, D] and the rotation of the rows -> [2, K, n, E]."""
        kv = self._kv(self._layer.join(embedded, fused)).view(-1, *self._shape)
        keys = rotary.rotate(self._k_norm(kv[:, 0]))
        return torch.stack([keys, kv[:, 1]]).transpose(1, 2)


class FusedChain:
    """The layer, a step at a time, with merged projections."""

    def __init__(self, layer: Eagle3Layer) -> None:
        attention: Eagle3Attention = layer.self_attn
        self._layer, self._mlp_norm, self._mlp = layer, layer.post_attention_layernorm, FusedMLP(layer.mlp)
        self._project = MergedProjections(attention)
        self._heads, self._kv_heads, self._head_dim = attention.heads, attention.kv_heads, attention.head_dim

    def step(self, step: int, feature: Tensor, embedded: Tensor, plan: ChainPlan, rotary: RotaryRows) -> Tensor:
        """Run row ``step`` of every chain; its keys and values are added to the gathered context of the plan.

        Args:
            step: 0-based; steps come in order.
            feature: [R, D] fused feature at step 0, then the output of the step before.
            embedded: [R, D] embedding of the token that the step reads.
            plan: the gathered context.
            rotary: rotation of the rows.

        Returns:
            [R, D] before the last norm.
        """
        qk, values = self._project(self._layer.join(embedded, feature), rotary)
        rows = torch.cat([qk, values], dim=1) if plan.order is None else torch.cat([qk, values], 1)[plan.order]
        mixed = [self._attend(step, rows[tile.requests], tile) for tile in plan.tiles]
        joined = mixed[0] if plan.back is None else torch.cat(mixed).index_select(0, plan.back)
        x = self._project.out(joined, add=feature)
        return self._mlp(self._mlp_norm(x), x)

    def _attend(self, step: int, rows: Tensor, tile: Tile) -> Tensor:
        """One tile: queries, keys and values [n, H + 2 K, E] -> [n, H * E]."""
        count, shape = len(rows), (2, self._kv_heads, -1, self._head_dim)
        queries, own = rows.split([self._heads, 2 * self._kv_heads], dim=1)
        own = own.view(count, *shape[:2], self._head_dim).permute(1, 2, 0, 3)  # [2, K, n, E]
        tile.keys_values.index_copy_(2, tile.own + step, own)
        keys, values = tile.keys_values.view(2, self._kv_heads * count, -1, self._head_dim)[
            :, :, 1 : tile.last + step + 1
        ]  # the first slot of a text holds no row
        queries = queries.view(count, self._kv_heads, -1, self._head_dim).transpose(0, 1)  # [K, n, group, E]
        scores = torch.bmm(queries.reshape(len(keys), -1, self._head_dim), keys.transpose(1, 2))
        if tile.bias is not None:
            scores.view(*queries.shape[:-1], -1)[..., tile.first + step - 1 :] += tile.bias
        mixed = torch.bmm(torch.softmax(scores, dim=-1), values).view(queries.shape)
        return mixed.transpose(0, 1).reshape(count, -1)
