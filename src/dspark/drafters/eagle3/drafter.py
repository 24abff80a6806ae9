"""The Eagle3 drafter at inference: context over the target's pages, then one small layer forward per drafted token.

A row joins the fused feature of one token with the embedding of the next. It is kept in the slot of the *later* token,
so that what a page holds depends on the tokens of this page and those before it, and a page found through the prefix
index is right whatever text comes after it. The fused features lie beside the keys and values, because the first row
after a page needs the feature of the page's last token.
Legend: R requests, G steps drafted, D hidden, V vocabulary, Vd draft vocabulary, n rows.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from dspark.core import CommittedRows, DraftBatch, Proposal
from dspark.drafters.drawn_block import DrawnBlock
from dspark.drafters.dspark.context_store import ContextStore
from dspark.drafters.dspark.frozen_linear import FrozenLinear
from dspark.drafters.dspark.rotary_table import RotaryTable
from dspark.drafters.dspark.target_side import DraftTarget, base_output, block_embedding
from dspark.drafters.eagle3.chain_plan import make_plan
from dspark.drafters.eagle3.fused import FusedChain, FusedContext
from dspark.drafters.eagle3.model import Eagle3Model


class Eagle3Drafter:
    """Autoregressive drafter of one layer (Eagle-3).

    Args:
        model: trained weights; copied in the target's dtype, the caller's stay as they are.
        target: the model whose tokens are drafted; lends embedding and LM head.
        embed: [V, D] own embedding matrix; None uses the target's.
        lm_head: [Vd, D] own output matrix; None uses the target's rows.
        draft_to_target: [Vd] int64 target id of each draft-vocabulary entry; None when the vocabularies are the same.
    """

    name = "eagle3"
    has_confidence = False

    @torch.inference_mode()
    def __init__(
        self,
        model: Eagle3Model,
        target: DraftTarget,
        *,
        embed: Tensor | None = None,
        lm_head: Tensor | None = None,
        draft_to_target: Tensor | None = None,
    ) -> None:
        model = copy.deepcopy(model).to(device=target.device, dtype=target.dtype)
        self.config, self._dtype, self._device = model.config, target.dtype, target.device
        self._max_positions = target.facts.max_positions
        self._draft_to_target = None if draft_to_target is None else draft_to_target.to(target.device)
        self._embed = block_embedding(target, embed)
        self._logits = base_output(target, lm_head, self._draft_to_target)
        self._fuse, self._norm = FrozenLinear(model.fc.weight), model.norm
        self._context, self._chain = FusedContext(model), FusedChain(model.layer)

    @property
    def block_size(self) -> int:
        """Most tokens one block can hold: as many steps as were trained."""
        return self.config.ttt_length

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """Target layers whose outputs make the features."""
        return self.config.target_layer_ids

    def context_bytes_per_page(self, page_size: int) -> int:
        """Bytes of keys, values and fused features for one page."""
        c = self.config
        return (2 * c.num_key_value_heads * c.head_dim + c.hidden_size) * page_size * self._dtype.itemsize

    @torch.inference_mode()
    def allocate(self, num_pages: int, page_size: int) -> None:
        """Allocate the context; called once, before the first ``observe``."""
        shape = self.config.layer_shape
        longest = min(self._max_positions, num_pages * page_size) + self.block_size
        self._store = ContextStore(shape, num_pages, page_size, self._dtype, self._device)
        self._features = torch.zeros(
            num_pages * page_size, self.config.hidden_size, dtype=self._dtype, device=self._device
        )
        self._rotary = RotaryTable(shape, longest, self._dtype, self._device)

    @torch.inference_mode()
    def observe(self, rows: CommittedRows) -> None:
        """Write features, keys and values of the rows into their slots.

        The row of a text's first token has no feature before it; what is written for it is never read.
        """
        assert rows.features is not None, "the target must tap the drafter's layers"
        assert rows.token_ids is not None, "rows come with their tokens"
        assert rows.previous_slots is not None, "rows come with the slots before them"
        if not len(rows.positions):
            return
        self._features.index_copy_(0, rows.kv_slots, self._fuse(rows.features.to(self._dtype)))
        before = self._features.index_select(0, rows.previous_slots)
        rotary = self._rotary.at((rows.positions - 1).clamp_min_(0))
        self._store.write(self._context(before, self._embed(rows.token_ids), rotary)[None], rows.kv_slots)

    @torch.inference_mode()
    def propose(self, batch: DraftBatch) -> Proposal:
        """Draft a chain per request; as many steps are run as the longest request may use."""
        lengths = tuple(min(limit, self.block_size) for limit in batch.max_lens)
        last = torch.tensor(batch.anchor_positions, device=self._device) - 1  # of the tokens with known features
        feature = self._features.index_select(0, self._slots(batch.page_table, last))
        plan = make_plan(self._store.pages[0], batch.page_table, batch.anchor_positions, max(lengths))
        previous, block = batch.anchors, DrawnBlock(self._draft_to_target)
        for step in range(max(lengths)):
            feature = self._chain.step(step, feature, self._embed(previous), plan, self._rotary.at(last + step))
            previous = block.take(*batch.sampler(step, self._logits(self._norm(feature))))
        return block.proposal(lengths)

    def _slots(self, page_table: Tensor, positions: Tensor) -> Tensor:
        """Slots [R] of one position per request."""
        size = self._store.page_size
        pages = page_table.gather(1, (positions // size)[:, None])[:, 0]
        return pages * size + positions % size
