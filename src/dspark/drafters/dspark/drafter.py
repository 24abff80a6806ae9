"""The DSpark drafter at inference: context over the target's pages, one backbone pass, then slot after slot.

Also serves DFlash, which has no sequential head: its slots are sampled from the base logits.
Legend: R requests, G slots drafted this step, D hidden, V vocabulary, Vd draft vocabulary, r head rank.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from dspark.core import CommittedRows, DraftBatch, Proposal
from dspark.drafters.dspark.block_plan import BlockPlanner
from dspark.drafters.dspark.context_store import ContextStore
from dspark.drafters.dspark.frozen_linear import FrozenLinear
from dspark.drafters.dspark.fused import FusedBackbone, FusedContext
from dspark.drafters.dspark.heads import ConfidenceHead, SequentialHead
from dspark.drafters.dspark.model import DSparkModel, block_ids
from dspark.drafters.dspark.rotary_table import RotaryTable
from dspark.drafters.dspark.target_side import BaseHead, DraftTarget, OwnEmbedding


class DSparkDrafter:
    """Semi-autoregressive drafter (DSpark; DFlash without a sequential head).

    Args:
        model: trained weights; copied in the target's dtype, the caller's stay as they are.
        target: the model whose tokens are drafted; lends embedding and LM head.
        embed: [V, D] own embedding matrix; None uses the target's.
        lm_head: [Vd, D] own output matrix; None uses the target's rows.
        draft_to_target: [Vd] int64 target id of each draft-vocabulary entry; None when the vocabularies are the same.
    """

    def __init__(
        self,
        model: DSparkModel,
        target: DraftTarget,
        *,
        embed: Tensor | None = None,
        lm_head: Tensor | None = None,
        draft_to_target: Tensor | None = None,
    ) -> None:
        self.config, self.dtype, self.device = model.config, target.dtype, target.device
        self._max_positions = target.facts.max_positions
        self._draft_to_target = None if draft_to_target is None else draft_to_target.to(target.device)
        with torch.inference_mode():
            model = copy.deepcopy(model).to(device=target.device, dtype=target.dtype)
            self._context, self._backbone = FusedContext(model), FusedBackbone(model)
            self._head = model.markov_head
            self._head_output = None if self._head is None else FrozenLinear(self._head.markov_w2.weight)
            self._embed = self._embedding(target, embed)
            self._base_logits = self._output(target, lm_head)
            self._confidence = _Float32Confidence.of(model.confidence_head)

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
        return c.num_hidden_layers * 2 * c.num_key_value_heads * c.head_dim * page_size * self.dtype.itemsize

    def allocate(self, num_pages: int, page_size: int) -> None:
        """Allocate the context store; called once, before the first ``observe``."""
        longest = min(self._max_positions, num_pages * page_size) + self.block_size
        with torch.inference_mode():
            self._store = ContextStore(self.config, num_pages, page_size, self.dtype, self.device)
            self._rotary = RotaryTable(self.config, longest, self.dtype, self.device)
            self._planner = BlockPlanner(self.config, page_size, self.dtype, self.device)

    @torch.inference_mode()
    def observe(self, rows: CommittedRows) -> None:
        """Write the context keys and values of the rows into their slots."""
        assert rows.features is not None, "the target must tap the drafter's layers"
        if not rows.positions.numel():
            return
        context = self._context(rows.features.to(self.dtype), self._rotary.at(rows.positions))
        self._store.write(context, rows.kv_slots)

    @torch.inference_mode()
    def propose(self, batch: DraftBatch) -> Proposal:
        """Draft a block per request; only as many slots are sampled as the longest request may use."""
        lengths = tuple(min(limit, self.block_size) for limit in batch.max_lens)
        hidden = self._hidden(batch)[: max(lengths)]
        tokens, probs, confidence = self._draft(hidden, batch.anchors, batch.sampler)
        return Proposal(
            tokens=tokens,
            lengths=lengths,
            probs=probs,
            draft_to_target=self._draft_to_target,
            confidence=confidence,
        )

    def _hidden(self, batch: DraftBatch) -> Tensor:
        """Final hidden states of all slots, [G, R, D]."""
        assert batch.page_size == self._store.page_size
        plan = self._planner.plan(batch.page_table, batch.anchor_positions)
        embedded = self._embed(block_ids(self.config, plan.sort(batch.anchors)))
        hidden = self._backbone(embedded, plan, self._rotary.at(plan.positions), self._store)
        return plan.unsort(hidden).transpose(0, 1).contiguous()

    def _draft(
        self, hidden: Tensor, anchors: Tensor, sampler: Callable[[int, Tensor], tuple[Tensor, Tensor | None]]
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Sample [G, R, D] slot by slot: tokens [R, G], probs [R, G, Vd] or None, confidence [R, G] or None."""
        logits = self._base_logits(hidden)
        walk = _HeadWalk(self._head, self._head_output)
        tokens: list[Tensor] = []
        probs: list[Tensor] = []
        previous = anchors
        for slot in range(hidden.shape[0]):
            drawn, drawn_from = sampler(slot, walk.logits(logits[slot], hidden[slot], previous))
            previous = drawn if self._draft_to_target is None else self._draft_to_target[drawn]
            tokens.append(previous)
            if drawn_from is not None:
                probs.append(drawn_from)
        stacked = torch.stack(probs, dim=1) if probs else None
        return torch.stack(tokens, dim=1), stacked, self._confidences(hidden, walk)

    def _confidences(self, hidden: Tensor, walk: _HeadWalk) -> Tensor | None:
        return None if self._confidence is None else self._confidence(hidden, walk.embedded).t()

    @staticmethod
    def _embedding(target: DraftTarget, own: Tensor | None) -> Callable[[Tensor], Tensor]:
        if own is None:
            return target.embed
        return OwnEmbedding.like(target, own.to(device=target.device, dtype=target.dtype))

    def _output(self, target: DraftTarget, own: Tensor | None) -> Callable[[Tensor], Tensor]:
        if own is None and self._draft_to_target is None:
            return target.lm_head
        if own is None:
            own = target.lm_head_weight().index_select(0, self._draft_to_target)
        weight = own.to(device=target.device, dtype=target.dtype)
        return BaseHead(project=FrozenLinear(weight), softcap=target.facts.logit_softcap)


class _HeadWalk:
    """The sequential head on its way through the slots; remembers the embedding it met at each slot."""

    def __init__(self, head: SequentialHead | None, output: FrozenLinear | None) -> None:
        self._head, self._output = head, output
        self._state: Tensor | None = None
        self.embedded: list[Tensor] = []

    def logits(self, base: Tensor, hidden: Tensor, previous: Tensor) -> Tensor:
        """Add the head's bias to base logits [R, Vd], given hidden [R, D] and previous tokens [R]."""
        if self._head is None or self._output is None:
            return base
        embedded = self._head.embed(previous)
        state = self._head.initial_state(embedded) if self._state is None else self._state
        code, self._state = self._head.step(embedded, hidden, state)
        self.embedded.append(embedded)
        return self._output(code, add=base)


class _Float32Confidence:
    """The confidence head in float32, all slots in one go: slot j reads only what stood before j."""

    def __init__(self, head: ConfidenceHead) -> None:
        self._weight, self._bias = head.proj.weight[0].float(), head.proj.bias.float()
        self._reads_markov = head.reads_markov

    @classmethod
    def of(cls, head: ConfidenceHead | None) -> _Float32Confidence | None:
        """Wrap a head, if there is one."""
        return None if head is None else cls(head)

    def __call__(self, hidden: Tensor, embedded: list[Tensor]) -> Tensor:
        """Probabilities [G, R] from hidden [G, R, D] and the embedding before each slot, [R, r] each."""
        parts = [hidden, torch.stack(embedded)] if self._reads_markov else [hidden]
        return torch.sigmoid(torch.cat(parts, dim=-1).float() @ self._weight + self._bias)
