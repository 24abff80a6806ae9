"""The drafter as one module: feature fusion, draft layers, sequential head, confidence head.

Parameter names are those of the checkpoint layout. Embedding and LM head belong to the target and are passed in.
Legend: N sequences, S context positions, A blocks (anchors), G slots, m tapped layers, D hidden.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from dspark.drafters.dspark.backbone import DraftLayer, LayerKV, RMSNorm, Rotary
from dspark.drafters.dspark.config import DSparkConfig
from dspark.drafters.dspark.experts import RoutingLog
from dspark.drafters.dspark.heads import ConfidenceHead, build_sequential_head


def block_ids(config: DSparkConfig, anchor_tokens: Tensor, block_size: int | None = None) -> Tensor:
    """Input ids of blocks, [anchor, MASK, .., MASK]: [..] int64 -> [.., G] int64; G is the drafter's if not given."""
    ids = anchor_tokens.new_full((*anchor_tokens.shape, block_size or config.block_size), config.mask_token_id)
    ids[..., 0] = anchor_tokens
    return ids


class DSparkModel(nn.Module):
    """Backbone and heads of DSpark (DFlash when there is no sequential head)."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.config = config
        fused = len(config.target_layer_ids) * config.hidden_size
        self.fc = nn.Linear(fused, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Rotary(config)
        self.markov_head = build_sequential_head(config)
        self.confidence_head = ConfidenceHead(config) if config.enable_confidence_head else None

    def draft_layers(self) -> list[DraftLayer]:
        """The draft layers, first to last."""
        return cast(list[DraftLayer], list(self.layers))

    def context(self, features: Tensor) -> Tensor:
        """Fuse tapped target features: [.., m * D] -> [.., D]."""
        context: Tensor = self.hidden_norm(self.fc(features))
        return context

    def context_keys_values(self, context: Tensor, positions: Tensor) -> list[LayerKV]:
        """Keys and values of context rows for every draft layer: [.., D] and int64 [..] -> each [.., K, E]."""
        tables = self.rotary.tables(positions, context.dtype)
        return [layer.self_attn.keys_values(context, tables) for layer in self.draft_layers()]

    def block_ids(self, anchor_tokens: Tensor, block_size: int | None = None) -> Tensor:
        """Input ids of blocks, [anchor, MASK, .., MASK]: [..] int64 -> [.., G] int64; the drafter's G by default."""
        return block_ids(self.config, anchor_tokens, block_size)

    def blocks(
        self,
        embedded: Tensor,
        anchors: Tensor,
        context: list[LayerKV],
        key_positions: Tensor,
        routing: RoutingLog | None = None,
    ) -> Tensor:
        """Run blocks through the draft layers.

        Args:
            embedded: [N, A, G, D] target embeddings of the block ids.
            anchors: [N, A] int64 anchor positions; slot j sits at anchor + j.
            context: per layer, keys and values [N, S, K, E] of the context.
            key_positions: [N, S] int64 positions of the context keys; a key at or after the anchor is not seen, so
                padding may carry any large number.
            routing: takes the choices of expert layers, rows [N, A, G].

        Returns:
            [N, A, G, D] final hidden states (after the last norm).
        """
        slots = anchors[..., None] + torch.arange(embedded.shape[-2], device=anchors.device)  # [N, A, G]
        tables = self.rotary.tables(slots, embedded.dtype)
        unseen = self._unseen(slots, anchors, key_positions)
        for layer, layer_context in zip(self.layers, context, strict=True):
            embedded = layer(embedded, tables, layer_context, unseen, routing)
        hidden: Tensor = self.norm(embedded)
        return hidden

    def _unseen(self, slots: Tensor, anchors: Tensor, key_positions: Tensor) -> Tensor:
        """[N, A, G, S] bool: context keys not strictly before the anchor, or outside the sliding window."""
        keys = key_positions[:, None, None, :]
        unseen = (keys >= anchors[..., None, None]).expand(*slots.shape, -1)
        if self.config.sliding_window is not None:
            unseen = unseen | (keys <= slots[..., None] - self.config.sliding_window)
        return unseen
