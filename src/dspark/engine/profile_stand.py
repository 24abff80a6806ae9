"""A stand that runs made-up steps through the engine's own path, as wide and as deep as they are wanted."""

from __future__ import annotations

import time

import torch

from dspark.core import CommittedRows, Proposal
from dspark.drafters import Drafter
from dspark.engine.allotment import Allotment
from dspark.engine.blocks import NO_BLOCKS, Blocks
from dspark.engine.drafting import Draws
from dspark.engine.made_up import MadeUpTexts
from dspark.engine.memory import bytes_per_page, default_kv_memory
from dspark.engine.outcome import committed_rows, outcomes
from dspark.engine.profile_plan import ProfilePlan, requests_of
from dspark.engine.worker import Worker
from dspark.target import PackedTarget


class ProfileStand:
    """Times steps. The target's and the drafter's memory is its own meanwhile.

    Args:
        target: the model.
        drafter: the drafter.
        plan: sizes.
    """

    def __init__(self, target: PackedTarget, drafter: Drafter, plan: ProfilePlan) -> None:
        self._target, self._drafter = target, drafter
        self._requests = min(plan.max_requests, plan.max_rows)
        whole = 1 + drafter.block_size
        rest = max(plan.max_rows - self._requests * whole, whole)  # most rows of one text in a step
        longest = max(target.facts.max_positions - rest - 1, 1)
        self.contexts = sorted({min(context, longest) for context in plan.contexts})
        page, deepest = target.page_size, self.contexts[-1] // target.page_size
        affordable = default_kv_memory(target.device) // bytes_per_page(target, drafter)
        shared = max(min(self._requests * deepest, affordable), deepest)
        own = [whole] * self._requests + [rest]
        self._texts = MadeUpTexts(target.facts.vocab_size, page, shared, own)
        target.set_taps(drafter.tap_layers)
        self._allocate(self._texts.num_pages)
        self._worker = Worker(target, drafter)

    def close(self) -> None:
        """Give the memory back."""
        self._allocate(1)

    def verify(self, rows: int, context: int) -> tuple[float, int]:
        """Seconds of a step without drafting, and the rows that ran."""
        allotment, blocks = self._step(rows, context)
        draws = Draws.of(allotment.judged, self._drafter.block_size)
        start = self._now()
        work, batch = self._worker.pack(allotment, blocks, allotment.limits)
        output = self._worker.forward(batch)
        self._worker.judge(work, output, draws, blocks)
        return self._now() - start, batch.num_rows

    def draft(self, requests: int, block: int) -> tuple[float, int]:
        """Seconds of drafting, upkeep of the context included, and the requests that drafted."""
        context = self.contexts[len(self.contexts) // 2]
        sequences = [self._texts.decoding(place, context) for place in range(requests)]
        allotment = Allotment.of(sequences, [block] * requests, (), requests * block)
        committed, draws = self._committed(allotment), Draws.of(allotment.judged, self._drafter.block_size)
        start = self._now()
        found = self._worker.draft(allotment, draws)
        self._worker.upkeep.take(committed)
        return self._now() - start, len(found.lengths)

    def _allocate(self, num_pages: int) -> None:
        self._target.allocate(num_pages)
        self._drafter.allocate(num_pages, self._target.page_size)

    def _now(self) -> float:
        """The time, when everything before it is done."""
        if self._target.device.type == "cuda":
            torch.cuda.synchronize(self._target.device)
        return time.perf_counter()

    def _step(self, rows: int, context: int) -> tuple[Allotment, Blocks]:
        """A step of so many rows: anchors and drafts of some requests, and a prompt where they are not enough."""
        whole = 1 + self._drafter.block_size
        number = requests_of(rows, self._drafter.block_size, self._requests)
        drafts = min(rows, number * whole) - number
        limits = [drafts // number + (place < drafts % number) for place in range(number)]
        rest = rows - number - drafts
        sequences = [self._texts.decoding(place, context) for place in range(number)]
        filling = [self._texts.filling(self._requests, context, rest)] if rest else []
        allotment = Allotment.of(sequences, limits, filling, drafts + rest)
        return allotment, self._blocks(allotment)

    def _blocks(self, allotment: Allotment) -> Blocks:
        """Random drafts, as deterministic proposals."""
        lengths = allotment.limits[: allotment.num_drafting]
        if not lengths:
            return NO_BLOCKS
        tokens = [self._texts.tokens(max(lengths)) for _ in lengths]
        return Blocks(proposal=Proposal(tokens=torch.tensor(tokens), lengths=lengths), tokens=tokens)

    def _committed(self, allotment: Allotment) -> CommittedRows:
        """What becomes context in a step where one draft of each request is kept."""
        single = allotment.cut((1,) * len(allotment.ready))
        work, batch = self._worker.pack(single, self._blocks(single), single.limits)
        output = self._worker.forward(batch)
        return committed_rows(outcomes(work, (), output.logits), batch, output.features)
