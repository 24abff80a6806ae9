"""What a confidence threshold would have done to rounds that were recorded with whole blocks verified.

Cutting a block earlier changes nothing about the drafts before the cut, so the outcome of each recorded round under a
threshold is known exactly. What is not known is where the next round would have started: figures are per round, over
the anchors of the recorded run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark.engine import RoundTrace

THRESHOLDS = tuple(number / 10 for number in range(10))
"""What is tried: 0 (whole blocks) to 0.9."""


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One threshold.

    Attributes:
        threshold: slots before the first one with less confidence are verified.
        rounds: rounds behind the figures.
        acceptance_rate: accepted over verified drafts; None if nothing is verified.
        verify_len: mean drafts verified per round.
        tau: mean tokens committed per round.
        tokens_per_second: measured throughput; None for what was computed afterwards.
    """

    threshold: float
    rounds: int
    acceptance_rate: float | None
    verify_len: float
    tau: float
    tokens_per_second: float | None = None


def whole_blocks(traces: Sequence[RoundTrace], block_size: int) -> list[RoundTrace]:
    """Rounds with confidences that drafted a whole block and verified it, to its end or to the end of the answer."""
    return [
        trace
        for trace in traces
        if len(trace.drafted) == len(trace.confidence) == block_size
        and (trace.verified == block_size or ended_by_draft(trace))
    ]


def ended_by_draft(trace: RoundTrace) -> bool:
    """Whether an accepted draft ended the answer, so that nothing after it was looked at."""
    return len(trace.committed) == trace.accepted


def sweep(traces: Sequence[RoundTrace], block_size: int) -> tuple[SweepPoint, ...]:
    """Figures per threshold over the rounds of :func:`whole_blocks`; none if there are no such rounds.

    Thresholds are compared with what the policy would see: calibrated confidences where there is a calibration. As in
    the engine's own counts, drafts after one that ended the answer count as never looked at.

    Args:
        traces: rounds recorded under the policy ``fixed``.
        block_size: G.
    """
    rounds = whole_blocks(traces, block_size)
    if not rounds:
        return ()
    confidence = np.array([trace.calibrated or trace.confidence for trace in rounds], np.float64)  # [n, G]
    verified = np.array([trace.verified for trace in rounds])
    accepted = np.array([trace.accepted for trace in rounds])
    ended = np.array([ended_by_draft(trace) for trace in rounds])
    return tuple(_point(threshold, confidence, verified, accepted, ended) for threshold in THRESHOLDS)


def _point(
    threshold: float, confidence: np.ndarray, verified: np.ndarray, accepted: np.ndarray, ended: np.ndarray
) -> SweepPoint:
    trusted = np.logical_and.accumulate(confidence >= threshold, axis=1).sum(axis=1)
    looked_at = np.minimum(trusted, verified)
    kept = np.minimum(accepted, looked_at)
    committed = kept + ~(ended & (kept == accepted))
    total = int(looked_at.sum())
    return SweepPoint(
        threshold=threshold,
        rounds=len(confidence),
        acceptance_rate=int(kept.sum()) / total if total else None,
        verify_len=float(looked_at.mean()),
        tau=float(committed.mean()),
    )
