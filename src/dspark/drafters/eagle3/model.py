"""The Eagle3 drafter as one module: one layer that runs on its own output (Li et al. 2025, Eagle-3).

Row i of a text pairs what is known of token i with the embedding of the token after it and predicts the one after
that. At step 0 the known part is the fused target feature of token i, at step k the layer's own output of the step
before, one token further on. A row sees the step-0 rows up to itself, and its own later steps.

Parameter names are those of the checkpoint layout. Embedding and LM head belong to the target and are passed in.
Legend: N sequences, S rows of the longest, A rows that are unrolled, D hidden, H query heads, K key/value heads, E head
size, m tapped layers, G steps.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from dspark.drafters.dspark.backbone import DraftAttention, LayerKV, RMSNorm, Rotary
from dspark.drafters.dspark.experts import GatedMLP
from dspark.drafters.eagle3.config import Eagle3Config

Tables = tuple[Tensor, Tensor]
"""Rotary cosines and sines of some positions."""


class Eagle3Attention(DraftAttention):
    """Attention whose input is twice as wide as its output: [normed token embedding ; normed feature]."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__(config.layer_shape, 2 * config.hidden_size)

    def forward(self, x: Tensor, tables: Tables, context: LayerKV, unseen: Tensor, own: list[LayerKV]) -> Tensor:
        """Attend.

        Args:
            x: [N, A, 2 D] joined inputs of the rows.
            tables: rotary tables of the rows.
            context: keys and values of the step-0 rows, [N, S, K, E].
            unseen: [N, A, S] bool, True where a row must not see a step-0 key.
            own: keys and values [N, A, K, E] of each later step of the same rows, this one included.

        Returns:
            [N, A, D].
        """
        n, a, _ = x.shape
        group = self.heads // self.kv_heads
        queries = Rotary.rotate(self.q_norm(self.q_proj(x).view(n, a, self.heads, self.head_dim)), tables)
        queries = queries.view(n, a, self.kv_heads, group, self.head_dim).transpose(1, 2)  # [N, K, A, group, E]
        keys, values = (t.transpose(1, 2) for t in context)  # [N, K, S, E]
        seen = (queries.flatten(2, 3) @ keys.transpose(-1, -2)).float().view(n, self.kv_heads, a, group, -1)
        scores = [seen.masked_fill(unseen[:, None, :, None], float("-inf"))]
        if own:
            own_keys, own_values = (torch.stack(part, dim=-2).transpose(1, 2) for part in zip(*own, strict=True))
            scores.append((queries @ own_keys.transpose(-1, -2)).float())  # own: [N, K, A, k, E]
        weights = torch.softmax(torch.cat(scores, dim=-1) * self.head_dim**-0.5, dim=-1).to(x.dtype)
        on_context, on_own = weights.split([keys.shape[2], len(own)], dim=-1)
        mixed = (on_context.flatten(2, 3) @ values).view_as(queries)
        if own:
            mixed = mixed + on_own @ own_values
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(n, a, self.heads * self.head_dim))
        return out


class Eagle3Layer(nn.Module):
    """Attention and MLP; the residual stream starts as the feature itself, un-normed."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.self_attn = Eagle3Attention(config)
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def join(self, embedded: Tensor, feature: Tensor) -> Tensor:
        """The attention's input: [.., D] token embeddings and [.., D] features -> [.., 2 D]."""
        return torch.cat([self.input_layernorm(embedded), self.hidden_norm(feature)], dim=-1)

    def forward(
        self, feature: Tensor, x: Tensor, tables: Tables, context: LayerKV, unseen: Tensor, own: list[LayerKV]
    ) -> Tensor:
        """One step of the rows: features [N, A, D] and joined inputs x -> [N, A, D]; the rest as in the attention."""
        mixed = feature + self.self_attn(x, tables, context, unseen, own)
        out: Tensor = mixed + self.mlp(self.post_attention_layernorm(mixed))
        return out


class Eagle3Model(nn.Module):
    """Feature fusion, the layer, the last norm."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.layers = nn.ModuleList([Eagle3Layer(config)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Rotary(config.layer_shape)

    @property
    def layer(self) -> Eagle3Layer:
        """The only layer."""
        return cast(Eagle3Layer, self.layers[0])

    def fuse(self, features: Tensor) -> Tensor:
        """Tapped target features [.., m * D] to features of the drafter [.., D]."""
        fused: Tensor = self.fc(features)
        return fused

    def context(self, fused: Tensor, embedded: Tensor, positions: Tensor) -> LayerKV:
        """Step-0 keys and values of rows: fused features and embeddings of the next tokens [.., D] -> [.., K, E]."""
        tables = self.rotary.tables(positions, fused.dtype)
        return self.layer.self_attn.keys_values(self.layer.join(embedded, fused), tables)

    def unroll(
        self, fused: Tensor, embedded: Tensor, positions: Tensor, context: LayerKV, key_positions: Tensor
    ) -> list[Tensor]:
        """Run rows for some steps, each on its own output, with given tokens (training-time test).

        Args:
            fused: [N, A, D] fused features of the rows.
            embedded: [N, A, G, D] embeddings of the token that each step reads.
            positions: [N, A] int64 positions i of the rows; step k sits at i + k.
            context: step-0 keys and values [N, S, K, E].
            key_positions: [N, S] int64 positions of the context rows; padding may carry any large number.

        Returns:
            outputs of each step, [N, A, D], before the last norm.
        """
        unseen = key_positions[:, None, :] > positions[..., None]  # [N, A, S]
        feature, own, outputs = fused, list[LayerKV](), list[Tensor]()
        for step in range(embedded.shape[2]):
            tables = self.rotary.tables(positions + step, fused.dtype)
            x = self.layer.join(embedded[:, :, step], feature)
            if step:  # the row's own key of step 0 is among the context
                own.append(self.layer.self_attn.keys_values(x, tables))
            feature = self.layer(feature, x, tables, context, unseen, own)
            outputs.append(feature)
        return outputs
