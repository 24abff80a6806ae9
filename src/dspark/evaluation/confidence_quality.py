"""How far confidences can be trusted as probabilities, per position and overall."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dspark.calibration import (
    Calibration,
    PositionReliability,
    ReliabilityBins,
    Rounds,
    mean_ece,
    reliability_by_position,
)
from dspark.engine import RoundTrace


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Agreement of probabilities with what happened; figures without a meaning (no entries, one outcome) are nan.

    Attributes:
        count: entries.
        predicted, observed: mean probability, and share of entries in which it happened.
        ece: expected calibration error.
        noise: the ECE that exact probabilities would show at this count by chance.
        brier: mean squared error.
        auroc: how well the order of the probabilities tells the outcomes apart.
    """

    count: int
    predicted: float
    observed: float
    ece: float
    noise: float
    brier: float
    auroc: float

    @classmethod
    def of(cls, found: PositionReliability) -> Trust:
        """The figures without the diagram."""
        return cls(
            count=found.count,
            predicted=found.predicted,
            observed=found.observed,
            ece=found.ece,
            noise=found.noise,
            brier=found.brier,
            auroc=found.auroc,
        )


@dataclass(frozen=True, kw_only=True)
class TrustByPosition:
    """One kind of probability, all positions.

    Attributes:
        overall: all entries of all positions together.
        positions: [G] each position by itself.
        mean_ece: plain mean over the positions that have entries.
        worst_ece: the largest of them.
        bins: the reliability diagram of all entries.
    """

    overall: Trust
    positions: tuple[Trust, ...]
    mean_ece: float
    worst_ece: float
    bins: ReliabilityBins


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Two readings of the same confidences.

    Attributes:
        conditional: each slot's confidence against the acceptance of its token, where all before it were accepted.
        survival: running products against the acceptance of the whole prefix; what schedulers count on.
    """

    conditional: TrustByPosition
    survival: TrustByPosition


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """Quality of a drafter's own confidences, and of the calibrated ones if there is a calibration.

    Attributes:
        rounds: rounds with confidences.
        raw: as the drafter gave them.
        calibrated: after the calibration beside its checkpoint.
    """

    rounds: int
    raw: Quality
    calibrated: Quality | None


def confidence_quality(
    traces: Sequence[RoundTrace], block_size: int, stop_ids: Collection[int], calibration: Calibration | None
) -> Confidence | None:
    """Judge the confidences of recorded rounds; None if there are none.

    Args:
        traces: the rounds.
        block_size: G.
        stop_ids: tokens that end an answer; nothing is known of the drafts behind one.
        calibration: judged too, if there is one.
    """
    rounds = Rounds.of(traces, block_size, stop_ids)
    if not len(rounds):
        return None
    calibrated = None if calibration is None else quality(rounds, calibration.apply_array(rounds.confidence))
    return Confidence(rounds=len(rounds), raw=quality(rounds, rounds.confidence), calibrated=calibrated)


def quality(rounds: Rounds, confidence: NDArray[np.float64]) -> Quality:
    """Judge confidences [N, G] of these rounds."""
    return Quality(
        conditional=_by_position(confidence, rounds.labels, rounds.reached),
        survival=_by_position(rounds.survival(confidence), rounds.labels, rounds.known),
    )


def _by_position(probs: NDArray[np.float64], labels: NDArray[np.bool_], mask: NDArray[np.bool_]) -> TrustByPosition:
    positions = reliability_by_position(probs, labels, mask)
    (overall,) = reliability_by_position(probs.reshape(-1, 1), labels.reshape(-1, 1), mask.reshape(-1, 1))
    return TrustByPosition(
        overall=Trust.of(overall),
        positions=tuple(Trust.of(position) for position in positions),
        mean_ece=mean_ece(positions),
        worst_ece=max((position.ece for position in positions if position.count), default=float("nan")),
        bins=overall.bins,
    )
