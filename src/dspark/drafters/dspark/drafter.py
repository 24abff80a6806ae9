"""The DSpark drafter at inference: context over the target's pages, one backbone pass, then slot after slot.

Also serves DFlash, which has no sequential head: its slots are sampled from the base logits.
Legend: R requests, G slots drafted this step, D hidden, V vocabulary, Vd draft vocabulary.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor

from dspark.core import CommittedRows, DraftBatch, Proposal
from dspark.drafters.drawn_block import DrawnBlock
from dspark.drafters.dspark.block_plan import BlockPlanner
from dspark.drafters.dspark.context_store import ContextStore
from dspark.drafters.dspark.frozen_linear import FrozenLinear
from dspark.drafters.dspark.fused import FusedBackbone, FusedContext
from dspark.drafters.dspark.head_walk import BlockConfidence, HeadWalk
from dspark.drafters.dspark.model import DSparkModel, block_ids
from dspark.drafters.dspark.rotary_table import RotaryTable
from dspark.drafters.dspark.target_side import DraftTarget, base_output, block_embedding


class DSparkDrafter:
    """Semi-autoregressive drafter (DSpark; DFlash without a sequential head).

    Args:
        model: trained weights; copied in the target's dtype, the caller's stay as they are.
        target: the model whose tokens are drafted; lends embedding and LM head.
        embed: [V, D] own embedding matrix; None uses the target's.
        lm_head: [Vd, D] own output matrix; None uses the target's rows.
        draft_to_target: [Vd] int64 target id of each draft-vocabulary entry; None when the vocabularies are the same.
        folder: directory of the checkpoint, where other files about it may lie; None if there is none.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: DSparkModel,
        target: DraftTarget,
        *,
        embed: Tensor | None = None,
        lm_head: Tensor | None = None,
        draft_to_target: Tensor | None = None,
        folder: Path | None = None,
    ) -> None:
        self.folder = folder
        model = copy.deepcopy(model).to(device=target.device, dtype=target.dtype)
        self.config, self._dtype, self._device = model.config, target.dtype, target.device
        self._max_positions = target.facts.max_positions
        self._draft_to_target = None if draft_to_target is None else draft_to_target.to(target.device)
        self._embed = block_embedding(target, embed)
        self._context, self._backbone = FusedContext(model), FusedBackbone(model)
        self._base_logits = base_output(target, lm_head, self._draft_to_target)
        self._head = model.markov_head
        self._head_output = None if self._head is None else FrozenLinear(self._head.markov_w2.weight)
        self._confidence = None if model.confidence_head is None else BlockConfidence(model.confidence_head)

    @property
    def name(self) -> str:
        """``dspark``, or ``dflash`` when there is no sequential head."""
        return "dflash" if self._head is None else "dspark"

    @property
    def block_size(self) -> int:
        """Most tokens one block can hold (gamma)."""
        return self.config.block_size

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """Target layers whose outputs make the context."""
        return self.config.target_layer_ids

    @property
    def has_confidence(self) -> bool:
        """Whether proposals carry confidence."""
        return self._confidence is not None

    def context_bytes_per_page(self, page_size: int) -> int:
        """Bytes of keys and values of all draft layers for one page."""
        c = self.config
        return c.num_hidden_layers * 2 * c.num_key_value_heads * c.head_dim * page_size * self._dtype.itemsize

    @torch.inference_mode()
    def allocate(self, num_pages: int, page_size: int) -> None:
        """Allocate the context store; called once, before the first ``observe``."""
        longest = min(self._max_positions, num_pages * page_size) + self.block_size
        self._store = ContextStore(self.config, num_pages, page_size, self._dtype, self._device)
        self._rotary = RotaryTable(self.config, longest, self._dtype, self._device)
        self._planner = BlockPlanner(self.config, page_size, self._dtype, self._device)

    @torch.inference_mode()
    def observe(self, rows: CommittedRows) -> None:
        """Write the context keys and values of the rows into their slots."""
        assert rows.features is not None, "the target must tap the drafter's layers"
        if len(rows.positions):
            context = self._context(rows.features.to(self._dtype), self._rotary.at(rows.positions))
            self._store.write(context, rows.kv_slots)

    @torch.inference_mode()
    def propose(self, batch: DraftBatch) -> Proposal:
        """Draft a block per request; only as many slots are sampled as the longest request may use."""
        lengths = tuple(min(limit, self.block_size) for limit in batch.max_lens)
        hidden = self._hidden(batch)[: max(lengths)]
        logits, walk = self._base_logits(hidden), HeadWalk(self._head, self._head_output)
        previous, block = batch.anchors, DrawnBlock(self._draft_to_target)
        for slot in range(len(hidden)):
            previous = block.take(*batch.sampler(slot, walk.logits(logits[slot], hidden[slot], previous)))
        confidence = None if self._confidence is None else self._confidence(hidden, walk.embedded)
        return block.proposal(lengths, confidence)

    def _hidden(self, batch: DraftBatch) -> Tensor:
        """Final hidden states of all slots of the block, [block_size, R, D]."""
        assert batch.page_size == self._store.page_size
        plan = self._planner.plan(batch.page_table, batch.anchor_positions)
        embedded = self._embed(block_ids(self.config, plan.sort(batch.anchors)))
        hidden = self._backbone(embedded, plan, self._rotary.at(plan.positions), self._store)
        return plan.unsort(hidden).transpose(0, 1).contiguous()
