"""The drafter's layers in serving form: one block per request over paged context, with merged weight matrices.

Computes what :meth:`DSparkModel.blocks` computes for A = 1. The keys and values of a request's block are put right
behind its gathered context, so that one attention call sees both.
Legend: R requests, G slots, D hidden, H query heads, K key/value heads, E head size, L layers, S gathered keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dspark.drafters.dspark.backbone import DraftLayer, Rotary
from dspark.drafters.dspark.config import DSparkConfig
from dspark.drafters.dspark.context_store import ContextStore
from dspark.drafters.dspark.model import DSparkModel


@dataclass(frozen=True, kw_only=True)
class BlockPlan:
    """Where everything of one drafting step lies; shared by all layers.

    Attributes:
        pages: [R * P] int64 pages to gather; P covers the longest context and its block.
        positions: [R, G] int64 positions of the block slots.
        own: [R * G] int64 index of each block slot among the R * S gathered keys.
        unused: indices of the gathered keys past each request's block; they may hold anything, even NaN.
        bias: [R, 1, 1 or G, S] 0 where a slot sees a key, -inf where not.
    """

    pages: Tensor
    positions: Tensor
    own: Tensor
    unused: Tensor
    bias: Tensor

    @classmethod
    def build(
        cls, config: DSparkConfig, page_table: Tensor, anchors: tuple[int, ...], page_size: int, dtype: torch.dtype
    ) -> BlockPlan:
        """Plan for page_table [R, P] int64 and the anchor positions of the R requests."""
        count, block = len(anchors), config.block_size
        needed = -(-(max(anchors) + block) // page_size)
        table = F.pad(page_table[:, :needed], (0, max(0, needed - page_table.shape[1])))
        span = needed * page_size
        device = page_table.device
        start = torch.tensor(anchors, device=device)[:, None]  # [R, 1]
        keys = torch.arange(span, device=device)  # [S]
        positions = start + keys[:block]
        rows = torch.arange(count, device=device)[:, None] * span
        past = keys >= start + block  # [R, S]
        hidden = past[:, None]  # [R, 1, S]
        if config.sliding_window is not None:
            old = (keys <= positions[..., None] - config.sliding_window) & (keys < start)[:, None]
            hidden = hidden | old  # [R, G, S]
        bias = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))
        return cls(
            pages=table.flatten(),
            positions=positions,
            own=(rows + positions).flatten(),
            unused=past.flatten().nonzero().squeeze(1),
            bias=bias[:, None],
        )


class RotaryTable:
    """Cosines and signed sines of every position, so that a rotation is three operations.

    ``rotate(x) = x * cos + swap_halves(x) * sin`` with the sign of the swapped half inside the sine.
    """

    def __init__(self, config: DSparkConfig, num_positions: int, dtype: torch.dtype, device: torch.device) -> None:
        cos, sin = Rotary(config).tables(torch.arange(num_positions, device=device), torch.float32)
        half = sin.shape[-1] // 2
        signed = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        self.cos, self.sin, self.half = cos.to(dtype), signed.to(dtype), half  # [positions, 1, E]

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the positions [n]: two tensors [n, 1, E]."""
        return self.cos.index_select(0, positions), self.sin.index_select(0, positions)

    def rotate(self, x: Tensor, rows: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate [n, heads, E]."""
        return torch.addcmul(x * rows[0], x.roll(self.half, -1), rows[1])


class FusedLayer:
    """One draft layer: q, k and v in one product, gate and up in one product."""

    def __init__(self, config: DSparkConfig, layer: DraftLayer) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.heads, self.kv_heads, self.head_dim = attention.heads, attention.kv_heads, attention.head_dim
        self.eps = config.rms_norm_eps
        self.input_norm, self.mlp_norm = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        self.qkv = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        norms = [attention.q_norm.weight.expand(self.heads, -1), attention.k_norm.weight.expand(self.kv_heads, -1)]
        self.qk_norm = torch.cat(norms)  # [H + K, E]
        self.out = attention.o_proj.weight
        self.gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        self.down = mlp.down_proj.weight

    def forward(self, x: Tensor, plan: BlockPlan, rows: tuple[Tensor, Tensor], rope: RotaryTable, kv: Tensor) -> Tensor:
        """Advance the residual stream.

        Args:
            x: [R * G, D] residual stream.
            plan: where keys lie and what is seen.
            rows: rotary rows of the slots.
            rope: rotates by them.
            kv: [2, K, R * S, E] gathered context, completed in place with the block's keys and values.

        Returns:
            [R * G, D].
        """
        x = x + F.linear(
            self._attend(F.rms_norm(x, x.shape[-1:], self.input_norm, self.eps), plan, rows, rope, kv), self.out
        )
        gate, up = F.linear(F.rms_norm(x, x.shape[-1:], self.mlp_norm, self.eps), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)

    def _attend(self, x: Tensor, plan: BlockPlan, rows: tuple[Tensor, Tensor], rope: RotaryTable, kv: Tensor) -> Tensor:
        requests, block = plan.positions.shape
        qkv = F.linear(x, self.qkv).view(x.shape[0], -1, self.head_dim)
        qk, values = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
        qk = rope.rotate(F.rms_norm(qk, qk.shape[-1:], None, self.eps) * self.qk_norm, rows)
        kv.index_fill_(2, plan.unused, 0.0)
        kv[0].index_copy_(1, plan.own, qk[:, self.heads :].transpose(0, 1))
        kv[1].index_copy_(1, plan.own, values.transpose(0, 1))
        keys, values = kv.view(2, self.kv_heads, requests, -1, self.head_dim).transpose(1, 2)  # [R, K, S, E]
        group = self.heads // self.kv_heads
        queries = qk[:, : self.heads].view(requests, block, self.kv_heads, group, self.head_dim)
        queries = queries.permute(0, 2, 3, 1, 4).reshape(requests, self.kv_heads, group * block, self.head_dim)
        bias = plan.bias if plan.bias.shape[2] == 1 else plan.bias.repeat(1, 1, group, 1)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
        mixed = mixed.view(requests, self.kv_heads, group, block, self.head_dim).permute(0, 3, 1, 2, 4)
        return mixed.reshape(x.shape[0], -1)


class FusedBackbone:
    """All draft layers over a context store."""

    def __init__(self, model: DSparkModel) -> None:
        config = model.config
        self.config, self.model = config, model
        self.layers = [FusedLayer(config, layer) for layer in model.layers]
        self.context_kv = torch.cat(
            [layer.qkv[config.num_attention_heads * config.head_dim :] for layer in self.layers]
        )
        self.context_norm = torch.stack([layer.qk_norm[-config.num_key_value_heads :] for layer in self.layers])

    def context_keys_values(self, features: Tensor, rows: tuple[Tensor, Tensor], rope: RotaryTable) -> Tensor:
        """Project tapped features [n, m * D] to the context of every layer, [L, 2, K, n, E]."""
        c = self.config
        shape = (len(features), c.num_hidden_layers, 2, c.num_key_value_heads, c.head_dim)
        kv = F.linear(self.model.context(features), self.context_kv).view(shape)
        keys = F.rms_norm(kv[:, :, 0], (c.head_dim,), None, c.rms_norm_eps) * self.context_norm
        keys = rope.rotate(keys.flatten(1, 2), rows).view_as(keys)
        return torch.stack([keys, kv[:, :, 1]]).permute(2, 0, 3, 1, 4)

    def forward(self, embedded: Tensor, plan: BlockPlan, rope: RotaryTable, store: ContextStore) -> Tensor:
        """Final hidden states [R, G, D] of the blocks whose input embeddings are [R, G, D]."""
        x, rows = embedded.flatten(0, 1), rope.at(plan.positions.flatten())
        for index, layer in enumerate(self.layers):
            x = layer.forward(x, plan, rows, rope, store.gather(index, plan.pages))
        return self.model.norm(x).view_as(embedded)
