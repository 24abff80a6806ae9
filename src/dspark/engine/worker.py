"""Drafter and target at work on one step. Nothing of any sequence changes here, so a step can be tried again."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
from numpy.typing import NDArray

from dspark.calibration import Calibration, OnlineCalibration
from dspark.core import PackedBatch
from dspark.drafters import Drafter
from dspark.engine.allotment import Allotment
from dspark.engine.blocks import NO_BLOCKS, Blocks, fetch
from dspark.engine.drafting import Draws, propose, shares
from dspark.engine.outcome import Outcome, committed_rows, judge_rows, outcomes
from dspark.engine.proposals import check_proposal, check_tokens
from dspark.engine.share import Share, pack
from dspark.engine.upkeep import Upkeep
from dspark.target import PackedTarget, TargetOutput


class Worker:
    """Runs a drafter and a target.

    Args:
        target: the model.
        drafter: who proposes.
        calibration: fitted, of the drafter's confidences; None leaves them.
        online: further correction that is learnt on the way; None for none.
        record: keep the confidences of every round.
    """

    def __init__(
        self,
        target: PackedTarget,
        drafter: Drafter,
        *,
        calibration: Calibration | None = None,
        online: OnlineCalibration | None = None,
        record: bool = False,
    ) -> None:
        self.target, self.drafter = target, drafter
        self._calibration, self._online, self._record = calibration, online, record
        self.upkeep = Upkeep(drafter)

    def draft(self, allotment: Allotment, draws: Draws) -> Blocks:
        """Blocks for the sequences that draft; the drafter is not called where nobody does.

        Raises:
            DsparkError: the drafter returned something else.
        """
        if not allotment.num_drafting:
            return NO_BLOCKS
        self.upkeep.catch_up()
        proposal = propose(self.drafter, allotment, draws, self.target)
        limits, vocab_size = allotment.limits[: allotment.num_drafting], self.target.facts.vocab_size
        check_proposal(proposal, limits, vocab_size, self.drafter.name)
        tokens, confidence = fetch(proposal)
        check_tokens(tokens, proposal.lengths, vocab_size, self.drafter.name)
        return Blocks(
            proposal=proposal, tokens=tokens.tolist(), confidence=confidence, trusted=self._trusted(confidence)
        )

    def pack(self, allotment: Allotment, blocks: Blocks, lengths: Seq[int]) -> tuple[list[Share], PackedBatch]:
        """The rows of the step: anchors, admitted drafts, prompts."""
        work = shares(allotment, blocks, lengths, record=self._record)
        return work, pack(work, self.target.page_size, self.target.device)

    def forward(self, batch: PackedBatch) -> TargetOutput:
        """The target over the rows."""
        return self.target.forward(batch)

    def judge(self, work: Seq[Share], output: TargetOutput, draws: Draws, blocks: Blocks) -> list[Outcome]:
        """What becomes of every share.

        Raises:
            RequestsFailedError: rows of some requests hold no numbers, or their constraints failed.
        """
        return outcomes(work, judge_rows(work, output.logits, draws, blocks.proposal), output.logits)

    def keep(self, decided: Seq[Outcome], batch: PackedBatch, output: TargetOutput, *, later: bool = False) -> None:
        """Bring what has become context to the drafter; see :class:`Upkeep`."""
        self.upkeep.take(committed_rows(decided, batch, output.features), later=later)

    def learn(self, blocks: Blocks, verified: NDArray[np.int64], accepted: NDArray[np.int64]) -> None:
        """Correct confidences from now on by what became of the drafts of the sequences that drafted."""
        if self._online is not None and blocks.confidence is not None:
            self._online.observe(self._fitted(blocks.confidence), verified, accepted)

    def _fitted(self, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
        return confidence if self._calibration is None else self._calibration.apply_array(confidence)

    def _trusted(self, confidence: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """Confidences [R, G] as the policy sees them."""
        if confidence is None:
            return None
        fitted = self._fitted(confidence)
        return fitted if self._online is None else self._online.apply(fitted)
