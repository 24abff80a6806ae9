"""A drafter with blocks and confidences written down beforehand, and engines that show what a policy makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dspark.core import DraftBatch, Proposal, SamplingParams
from dspark.engine import EngineCore
from dspark.scheduling import StepPolicy

from .tiny import Contextless, engine, tiny_target

Block = tuple[int, ...]
Confidence = Callable[[Block, int], float]
"""Confidence of the slot after the given drafts, for request r; it must not see the token drawn at that slot."""

VOCAB = 4


class Scripted(Contextless):
    """Proposes ``blocks[r]`` for the r-th request, in order of their prompts' first tokens."""

    name, has_confidence = "scripted", True

    def __init__(self, block_size: int, confidence: Callable[[Block, int], Sequence[float]]) -> None:
        self.block_size, self.confidence = block_size, confidence
        self.blocks: Sequence[Block] = ()
        self.calls = 0

    def propose(self, batch: DraftBatch) -> Proposal:
        self.calls += 1
        requests = [history[0] for history in batch.histories]
        width = max(batch.max_lens)
        rows = [self.blocks[r] for r in requests]
        stated = [list(self.confidence(self.blocks[r], r)) for r in requests]
        return Proposal(
            tokens=torch.tensor([row[:width] for row in rows]),
            lengths=tuple(batch.max_lens),
            confidence=torch.tensor([row[:width] for row in stated], dtype=torch.float32),
        )


def warmed(policy: StepPolicy, drafter: Scripted, requests: int, steps: int) -> EngineCore:
    """An engine whose requests have behind them some steps with all drafts zero, greedy."""
    core = engine(tiny_target(VOCAB), drafter, policy, max_requests=requests)
    for r in range(requests):
        core.add_request([r], SamplingParams(temperature=0.0, max_tokens=60))
    drafter.blocks = [(0,) * drafter.block_size] * requests
    for _ in range(1 + steps):
        core.step()
    return core


def verified(core: EngineCore, drafter: Scripted, drafts: Sequence[Block]) -> tuple[int, ...]:
    """How much the engine verifies of the given blocks in its next step, by request."""
    drafter.blocks = drafts
    order = [sequence.token_ids[0] for sequence in core._roster.running]
    before = {sequence.token_ids[0]: sum(sequence.tally.verified_at) for sequence in core._roster.running}
    core.step()
    after = {sequence.token_ids[0]: sum(sequence.tally.verified_at) for sequence in core._roster.running}
    return tuple(after[r] - before[r] for r in sorted(order))
