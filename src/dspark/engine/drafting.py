"""Asking the drafter for blocks, and the policy how much of them to verify."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark.core import DraftBatch, Proposal
from dspark.drafters import Drafter
from dspark.engine.allotment import Allotment
from dspark.engine.proposals import check_proposal
from dspark.engine.sequence import Sequence
from dspark.engine.share import Share, to_device
from dspark.kvcache import pages_for, pages_of
from dspark.scheduling import PlanView, VerifyPolicy
from dspark.target import PackedTarget
from dspark.verify import DraftDraws, RoundUniforms, RowSampling


@dataclass(frozen=True, kw_only=True)
class Draws:
    """How the sequences that get a token this step are sampled, in the order of ``Allotment.judged``.

    Attributes:
        sampling: their options.
        uniforms: their random numbers of this round; None if all are greedy.
    """

    sampling: RowSampling
    uniforms: RoundUniforms | None

    @classmethod
    def of(cls, judged: Seq[Sequence], block_size: int) -> Draws:
        """Collect options and numbers; a sequence's numbers depend on its seed and round only."""
        sampling = RowSampling.of([sequence.request.params for sequence in judged])
        if sampling.greedy.all():
            return cls(sampling=sampling, uniforms=None)
        seeds, rounds = [sequence.seed for sequence in judged], [sequence.round for sequence in judged]
        return cls(sampling=sampling, uniforms=RoundUniforms.of(seeds, rounds, max(block_size, 1)))

    def sampler(self, count: int) -> DraftDraws:
        """Draws drafts for the first ``count`` sequences."""
        uniforms = None if self.uniforms is None else self.uniforms.draft[:count]
        return DraftDraws(self.sampling.take(np.arange(count)), uniforms)


def propose(drafter: Drafter, allotment: Allotment, draws: Draws, target: PackedTarget) -> Proposal:
    """One block for each of the first ``num_drafting`` ready sequences.

    Raises:
        DsparkError: the drafter returned something else.
    """
    page_size, device, vocab_size = target.page_size, target.device, target.facts.vocab_size
    count = allotment.num_drafting
    if count == 0:
        return Proposal(tokens=torch.empty(0, 0, dtype=torch.int64), lengths=())
    drafting = allotment.ready[:count]
    positions = tuple([sequence.num_computed for sequence in drafting])
    width = max(1, pages_for(max(positions), page_size))
    table = pages_of([sequence.table for sequence in drafting])[:, :width]
    batch = DraftBatch(
        anchors=to_device([sequence.token_ids[-1] for sequence in drafting], device),
        anchor_positions=positions,
        page_table=torch.from_numpy(np.ascontiguousarray(table)).to(device),
        page_size=page_size,
        histories=[sequence.token_ids for sequence in drafting],
        max_lens=allotment.limits[:count],
        sampler=draws.sampler(count),
    )
    proposal = drafter.propose(batch)
    check_proposal(proposal, batch.max_lens, vocab_size, drafter.name)
    return proposal


def plan(policy: VerifyPolicy, allotment: Allotment, proposal: Proposal, confidence: Tensor | None) -> tuple[int, ...]:
    """Verify length of every ready sequence.

    Args:
        policy: decides.
        allotment: who gets rows.
        proposal: the blocks.
        confidence: [R, G] of the proposal, after calibration.
    """
    idle = len(allotment.ready) - len(proposal.lengths)
    view = PlanView(
        proposed=(*proposal.lengths, *(0,) * idle),
        confidence=_padded(confidence, idle),
        num_prefill_rows=allotment.num_prefill_rows,
    )
    if not any(view.proposed):
        return view.proposed
    lengths = policy.plan(view)
    assert len(lengths) == len(view.proposed), f"policy {policy.name!r} planned {len(lengths)} requests"
    for length, proposed in zip(lengths, view.proposed, strict=True):
        assert 0 <= length <= proposed, f"policy {policy.name!r} verifies {length} of {proposed} drafts"
    return lengths


def shares(
    allotment: Allotment, proposal: Proposal, lengths: Seq[int], *, record: bool, used: Tensor | None = None
) -> list[Share]:
    """The rows of every sequence of the step; those that yield tokens come first, in the order of ``judged``.

    Args:
        allotment: who gets rows.
        proposal: the blocks.
        lengths: verify length of every ready sequence.
        record: keep traces of the rounds.
        used: [R, G] calibrated confidences to keep beside the drafter's own; None if there are none.
    """
    idle = len(allotment.ready) - len(proposal.lengths)
    blocks = [*_rows(proposal.tokens, proposal.lengths), *((),) * idle]
    confidence, trusts = ([*_rows(table, proposal.lengths), *((),) * idle] for table in (proposal.confidence, used))
    found = [
        Share(
            sequence=sequence,
            tokens=(sequence.token_ids[-1],),
            drafts=block[:length],
            proposed=block,
            confidence=stated,
            calibrated=trust,
            record=record,
        )
        for sequence, block, stated, trust, length in zip(
            allotment.ready, blocks, confidence, trusts, lengths, strict=True
        )
    ]
    for place, (sequence, rows) in enumerate(allotment.chunks):
        start = sequence.num_computed
        tokens = tuple(sequence.token_ids[start : start + rows])
        found.append(Share(sequence=sequence, tokens=tokens, judged=place < allotment.num_finishing))
    return found


def _rows(table: Tensor | None, lengths: Seq[int]) -> list[tuple]:
    """Rows of [R, G] as tuples, each cut to its length; empty ones for no table."""
    if table is None:
        return [()] * len(lengths)
    return [tuple(row[:length]) for row, length in zip(table.tolist(), lengths, strict=True)]


def _padded(confidence: Tensor | None, idle: int) -> Tensor | None:
    """Confidences with rows for sequences that drafted nothing."""
    if confidence is None or idle == 0:
        return confidence
    return torch.nn.functional.pad(confidence, (0, 0, 0, idle))
