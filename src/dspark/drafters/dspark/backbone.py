"""The parallel backbone: a few Qwen3-style layers over [context features ; block] (DFlash; DSpark paper section 2.1).

One form serves training and serving: N sequences, each with S context keys and A blocks of G slots. A slot attends to
the context keys strictly before its block's anchor and to all slots of its own block; serving is the case A = 1.
Legend: D hidden, H query heads, K key/value heads, E head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dspark.drafters.dspark.config import DSparkConfig
from dspark.drafters.dspark.experts import GatedMLP, MixtureOfExperts, RoutingLog

LayerKV = tuple[Tensor, Tensor]
"""Keys and values of one layer's context, each [N, S, K, E], keys normed and rotated."""


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [.., size]; computed in float32 inside, returned in the input's dtype."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Rotary(nn.Module):
    """Rotary position embedding; frequencies stay float32 whatever the model's dtype (never a buffer that casts)."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.theta, self.size = config.rope_theta, config.head_dim

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin [.., 1, E] for int64 positions [..]."""
        exponents = torch.arange(0, self.size, 2, dtype=torch.float32, device=positions.device) / self.size
        angles = positions[..., None].float() * self.theta**-exponents
        angles = torch.cat([angles, angles], dim=-1).unsqueeze(-2)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    @staticmethod
    def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate [.., heads, E] by the tables of its positions."""
        low, high = x.chunk(2, dim=-1)
        return x * tables[0] + torch.cat([-high, low], dim=-1) * tables[1]


class DraftAttention(nn.Module):
    """Projections and norms of a draft layer's attention; how rows see each other is up to the kind of drafter.

    Args:
        config: shape of the heads.
        input_size: width of the rows that come in; those that go out are as wide as the drafter.
    """

    def __init__(self, config: DSparkConfig, input_size: int) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(input_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(input_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(input_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def keys_values(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> LayerKV:
        """Project rows [.., input size] to rotated keys and values, each [.., K, E]."""
        shape = (*x.shape[:-1], self.kv_heads, self.head_dim)
        keys = self.k_norm(self.k_proj(x).view(shape))
        return Rotary.rotate(keys, tables), self.v_proj(x).view(shape)


class BlockAttention(DraftAttention):
    """Attention of block slots to the shared context and to their own block, with the same K/V weights for both."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config, config.hidden_size)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], context: LayerKV, hidden_keys: Tensor) -> Tensor:
        """Attend.

        Args:
            x: [N, A, G, D] normed slot states.
            tables: rotary tables of the slots.
            context: keys and values of the context, [N, S, K, E].
            hidden_keys: [N, A, G, S] bool, True where a slot must not see a context key.

        Returns:
            [N, A, G, D].
        """
        n, a, g, _ = x.shape
        group = self.heads // self.kv_heads
        queries = self.q_norm(self.q_proj(x).view(n, a, g, self.heads, self.head_dim))
        queries = Rotary.rotate(queries, tables).view(n, a, g, self.kv_heads, group, self.head_dim)
        queries = queries.permute(0, 3, 1, 2, 4, 5).reshape(n, self.kv_heads, a, g * group, self.head_dim)
        block_keys, block_values = (t.permute(0, 3, 1, 2, 4) for t in self.keys_values(x, tables))  # [N, K, A, G, E]
        keys, values = (t.transpose(1, 2) for t in context)  # [N, K, S, E]
        flat = queries.reshape(n, self.kv_heads, a * g * group, self.head_dim)
        seen = (flat @ keys.transpose(-1, -2)).view(n, self.kv_heads, a, g, group, -1).float()
        seen = seen.masked_fill(hidden_keys[:, None, :, :, None], float("-inf")).flatten(3, 4)
        own = (queries @ block_keys.transpose(-1, -2)).float()
        weights = torch.softmax(torch.cat([seen, own], dim=-1) * self.head_dim**-0.5, dim=-1).to(x.dtype)
        on_context, on_block = weights.split([keys.shape[2], g], dim=-1)
        mixed = (on_context.flatten(2, 3) @ values).view_as(queries) + on_block @ block_values
        mixed = mixed.view(n, self.kv_heads, a, g, group, self.head_dim).permute(0, 2, 3, 1, 4, 5)
        out: Tensor = self.o_proj(mixed.reshape(n, a, g, self.heads * self.head_dim))
        return out


class DraftLayer(nn.Module):
    """Pre-norm attention and MLP; the context enters as ready keys and values, not through this layer's input norm."""

    mlp: GatedMLP | MixtureOfExperts

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.self_attn = BlockAttention(config)
        dense = config.num_experts is None
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size) if dense else MixtureOfExperts(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        x: Tensor,
        tables: tuple[Tensor, Tensor],
        context: LayerKV,
        hidden_keys: Tensor,
        routing: RoutingLog | None = None,
    ) -> Tensor:
        """Advance the residual stream [N, A, G, D]; arguments as in BlockAttention, experts note what they chose."""
        x = x + self.self_attn(self.input_layernorm(x), tables, context, hidden_keys)
        normed = self.post_attention_layernorm(x)
        return x + (self.mlp(normed, routing) if isinstance(self.mlp, MixtureOfExperts) else self.mlp(normed))
