"""Asking the drafter for blocks, and making rows of what is verified of them."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch

from dspark.core import DraftBatch, Proposal
from dspark.drafters import Drafter
from dspark.engine.allotment import Allotment
from dspark.engine.blocks import Blocks
from dspark.engine.sequence import Sequence
from dspark.engine.share import Share, to_device
from dspark.kvcache import pages_for, pages_of
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
    """One block for each of the first ``num_drafting`` ready sequences, of which there must be some."""
    page_size, device, count = target.page_size, target.device, allotment.num_drafting
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
    return drafter.propose(batch)


def shares(allotment: Allotment, blocks: Blocks, lengths: Seq[int], *, record: bool) -> list[Share]:
    """The rows of every sequence of the step; those that yield tokens come first, in the order of ``judged``.

    Args:
        allotment: who gets rows.
        blocks: what was drafted, by the first ones of ``ready``.
        lengths: verify length of every ready sequence.
        record: keep traces of the rounds.
    """
    found = [
        Share(
            sequence=sequence,
            tokens=(sequence.token_ids[-1],),
            drafts=block[:length],
            proposed=block,
            confidence=stated,
            calibrated=trusted,
            record=record,
        )
        for sequence, (block, stated, trusted), length in zip(
            allotment.ready, _parts(blocks, len(allotment.ready)), lengths, strict=True
        )
    ]
    for place, (sequence, rows) in enumerate(allotment.chunks):
        start = sequence.num_computed
        tokens = tuple(sequence.token_ids[start : start + rows])
        found.append(Share(sequence=sequence, tokens=tokens, judged=place < allotment.num_finishing))
    return found


def _parts(blocks: Blocks, count: int) -> Iterator[tuple[tuple, tuple, tuple]]:
    """Drafts, stated confidences and calibrated ones where they differ, for so many sequences."""
    stated, trusted = (None if table is None else table.tolist() for table in (blocks.confidence, blocks.trusted))
    corrected = blocks.trusted is not blocks.confidence
    for row, length in enumerate(blocks.lengths):
        yield (
            tuple(blocks.tokens[row][:length]),
            () if stated is None else tuple(stated[row][:length]),
            () if trusted is None or not corrected else tuple(trusted[row][:length]),
        )
    yield from [((), (), ())] * (count - len(blocks.lengths))
