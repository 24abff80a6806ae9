"""What became of drafts, and how honest the drafter's confidences are, for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dspark.calibration import bin_of
from dspark.engine import RoundStats

_LENGTHS = tuple(range(17))
_BINS = 10
_MEMORY = 2000.0
"""Trials after which the recent calibration error has forgotten two thirds."""


class DraftMetrics:
    """Counters of drafts by position, and of confidences by bin.

    A *trial* of a confidence is a draft that was looked at with all before it accepted. Its counters can be added up
    over servers and cut to any span; the calibration error of a span is the sum over bins of |stated - accepted|,
    divided by the trials. The gauge has it for recent trials.

    Args:
        registry: where they are shown.
        namespace: first part of all names.
    """

    def __init__(self, registry: CollectorRegistry, namespace: str) -> None:
        def count(name: str, what: str, *labels: str) -> Counter:
            return Counter(name, what, labels, namespace=namespace, registry=registry)

        self._lengths = Histogram(
            "verify_length_tokens",
            "Drafts verified, per answer and step.",
            buckets=_LENGTHS,
            namespace=namespace,
            registry=registry,
        )
        self._drafted = count("drafted_tokens", "Tokens proposed.")
        self._positions = (
            count("verified_tokens", "Drafts verified, by position in the block from 0.", "position"),
            count("reached_tokens", "Those with all earlier ones accepted.", "position"),
            count("accepted_tokens", "Drafts accepted, by position in the block from 0.", "position"),
        )
        self._bins = (
            count("confidence_trials", "Drafts reached, by confidence from.", "bin"),
            count("confidence_stated", "Sum of the confidences in them.", "bin"),
            count("confidence_accepted", "Those that were accepted.", "bin"),
        )
        self._error = Gauge(
            "calibration_error_ratio",
            "Expected calibration error of recent confidences, 0 to 1.",
            namespace=namespace,
            registry=registry,
        )
        self._error.set(math.nan)
        self._recent = np.zeros((len(self._bins), _BINS))

    def step(self, verify_lens: Sequence[int], rounds: Sequence[RoundStats]) -> None:
        """Note the rounds of a step, and how many drafts were planned to be verified in each."""
        if not rounds:
            return
        for length in verify_lens:
            self._lengths.observe(length)
        self._drafted.inc(sum(found.drafted for found in rounds))
        for counter, ends in zip(
            self._positions,
            ([r.verified for r in rounds], [r.reached for r in rounds], [r.accepted for r in rounds]),
            strict=True,
        ):
            for position in range(max(ends)):
                counter.labels(position).inc(sum(end > position for end in ends))
        self._learn(rounds)

    def _learn(self, rounds: Sequence[RoundStats]) -> None:
        """Count the trials of confidences."""
        trials = [(sure, j < r.accepted) for r in rounds for j, sure in enumerate(r.believed[: r.reached])]
        if not trials:
            return
        stated, accepted = np.array(trials, np.float64).T
        place = bin_of(stated, _BINS)
        weights = (np.ones_like(stated), stated, accepted)
        sums = np.stack([np.bincount(place, weights=weight, minlength=_BINS) for weight in weights])
        for counter, row in zip(self._bins, sums, strict=True):
            for index in np.flatnonzero(sums[0]):
                counter.labels(f"{index / _BINS:.1f}").inc(float(row[index]))
        self._recent = self._recent * math.exp(-len(trials) / _MEMORY) + sums
        tried, said, came = self._recent
        self._error.set(float(np.abs(said - came).sum() / tried.sum()))
