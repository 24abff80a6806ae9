"""How well probabilities agree with what happened: ECE, Brier score, AUROC and reliability diagrams.

Everything takes probabilities, outcomes and a mask of those entries that count, and is a function of numbers only.
Legend: N entries (rounds), G positions of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

NUM_BINS = 20
"""Equal-width bins over [0, 1], as in the method (section 5)."""


@dataclass(frozen=True, kw_only=True)
class ReliabilityBins:
    """A reliability diagram: entries sorted by probability into bins of equal width; bin i is [i, i + 1) / len.

    Attributes:
        count: entries of each bin.
        predicted: their mean probability; nan for an empty bin.
        observed: share of them whose outcome was 1; nan for an empty bin.
    """

    count: tuple[int, ...]
    predicted: tuple[float, ...]
    observed: tuple[float, ...]

    @property
    def total(self) -> int:
        """Entries in all bins."""
        return sum(self.count)


@dataclass(frozen=True, kw_only=True)
class PositionReliability:
    """Agreement at one position of the block.

    Attributes:
        count: entries that count there; where there are none, all figures are nan.
        predicted: mean probability.
        observed: share of outcomes that were 1.
        ece: expected calibration error.
        noise: the ECE that exact probabilities would show at this count, by chance alone.
        brier: mean squared error.
        auroc: chance that an entry with outcome 1 has a higher probability than one with outcome 0; nan where all
            outcomes are the same.
        bins: the reliability diagram.
    """

    count: int
    predicted: float
    observed: float
    ece: float
    noise: float
    brier: float
    auroc: float
    bins: ReliabilityBins


def bin_of(probs: Floats, bins: int = NUM_BINS) -> NDArray[np.int64]:
    """Bin of each probability: floor(bins * p), 1.0 falls into the last one."""
    return np.clip((probs * bins).astype(np.int64), 0, bins - 1)


def ece(probs: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None, *, bins: int = NUM_BINS) -> float:
    """Expected calibration error: mean over entries of |mean probability - mean outcome| of their bin.

    Args:
        probs: [N] probabilities.
        labels: [N] outcomes, 0 or 1.
        mask: [N] which entries count; None for all.
        bins: number of bins.

    Returns:
        A number in [0, 1]; nan without entries.
    """
    p, y = _select(probs, labels, mask)
    if not p.size:
        return float("nan")
    return float(np.abs(np.bincount(bin_of(p, bins), weights=p - y, minlength=bins)).sum() / p.size)


def expected_noise(probs: ArrayLike, mask: ArrayLike | None = None, *, bins: int = NUM_BINS) -> float:
    """ECE that probabilities which are exactly right show on average, because the sample is finite.

    In each bin the sum of (p - outcome) is then nearly normal with variance sum of p (1 - p), hence the mean of its
    absolute value is sqrt(2 / pi) standard deviations. An ECE near this figure cannot be told from a perfect one.

    Args:
        probs: [N] probabilities.
        mask: [N] which entries count; None for all.
        bins: number of bins.
    """
    p, _ = _select(probs, probs, mask)
    if not p.size:
        return float("nan")
    variance = np.bincount(bin_of(p, bins), weights=p * (1 - p), minlength=bins)
    return float(np.sqrt(2 / np.pi) * np.sqrt(variance).sum() / p.size)


def brier(probs: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None) -> float:
    """Mean squared difference of probability and outcome; nan without entries."""
    p, y = _select(probs, labels, mask)
    return float(np.mean((p - y) ** 2)) if p.size else float("nan")


def auroc(scores: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None) -> float:
    """Chance that a random entry with outcome 1 scores higher than a random one with outcome 0; ties count half.

    Returns:
        A number in [0, 1]; nan if all outcomes are the same.
    """
    s, y = _select(scores, labels, mask)
    positive = y > 0.5
    num_positive = int(positive.sum())
    num_negative = len(s) - num_positive
    if not num_positive or not num_negative:
        return float("nan")
    _, group, sizes = np.unique(s, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(sizes) - (sizes - 1) / 2  # 1-based rank, ties share the middle one
    above = mean_rank[group[positive]].sum() - num_positive * (num_positive + 1) / 2
    return float(above / (num_positive * num_negative))


def reliability_bins(
    probs: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None, *, bins: int = NUM_BINS
) -> ReliabilityBins:
    """The reliability diagram of these entries; arguments as for :func:`ece`."""
    p, y = _select(probs, labels, mask)
    place = bin_of(p, bins)
    count = np.bincount(place, minlength=bins)
    sums = (np.bincount(place, weights=values, minlength=bins) for values in (p, y))
    predicted, observed = (np.divide(s, count, out=np.full(bins, np.nan), where=count > 0) for s in sums)
    return ReliabilityBins(
        count=tuple(count.tolist()), predicted=tuple(predicted.tolist()), observed=tuple(observed.tolist())
    )


def reliability_by_position(
    probs: ArrayLike, labels: ArrayLike, mask: ArrayLike, *, bins: int = NUM_BINS
) -> tuple[PositionReliability, ...]:
    """All figures of every position.

    For conditional confidence pass the confidences with ``Rounds.labels`` and ``Rounds.reached``; for survival their
    running product with ``Rounds.labels`` and ``Rounds.known``.

    Args:
        probs: [N, G] probabilities; entries that do not count may be anything, nan included.
        labels: [N, G] outcomes.
        mask: [N, G] which entries count.
        bins: number of bins.
    """
    p, y, m = np.asarray(probs, np.float64), np.asarray(labels), np.asarray(mask, bool)
    assert p.shape == y.shape == m.shape, (p.shape, y.shape, m.shape)
    return tuple(_position(p[m[:, k], k], y[m[:, k], k], bins) for k in range(p.shape[1]))


def mean_ece(positions: Sequence[PositionReliability]) -> float:
    """Plain mean of the ECE over the positions that have entries; nan if none has."""
    values = [position.ece for position in positions if position.count]
    return float(np.mean(values)) if values else float("nan")


def _position(p: Floats, y: ArrayLike, bins: int) -> PositionReliability:
    label = np.asarray(y, np.float64)
    return PositionReliability(
        count=len(p),
        predicted=float(p.mean()) if len(p) else float("nan"),
        observed=float(label.mean()) if len(p) else float("nan"),
        ece=ece(p, label, bins=bins),
        noise=expected_noise(p, bins=bins),
        brier=brier(p, label),
        auroc=auroc(p, label),
        bins=reliability_bins(p, label, bins=bins),
    )


def _select(probs: ArrayLike, labels: ArrayLike, mask: ArrayLike | None) -> tuple[Floats, Floats]:
    """The entries that count, as numbers in double precision."""
    p, y = np.asarray(probs, np.float64), np.asarray(labels, np.float64)
    assert p.shape == y.shape, (p.shape, y.shape)
    if mask is not None:
        chosen = np.asarray(mask, bool)
        p, y = p[chosen], y[chosen]
    assert not np.isnan(p).any(), "probabilities that count must be numbers"
    return p, y
