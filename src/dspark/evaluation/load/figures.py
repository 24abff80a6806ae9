"""What the segments of a load test say: one row of figures per load and arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dspark.evaluation.arms import PLAIN
from dspark.evaluation.bootstrap import Bootstrapped, Estimate, rate_of, ratio_of, resamples, share_of_gain
from dspark.evaluation.load.latency import Percentiles
from dspark.evaluation.load.plan import LoadPlan, Point
from dspark.evaluation.load.run import Segment
from dspark.evaluation.load.sample import Sample

ORACLE = "oracle"
"""Policy of the arm that knows the outcome."""

LEAST_GAIN = 1.02
"""A bound that gains less over plain decoding is too close to it for a share to mean anything."""


@dataclass(frozen=True, kw_only=True)
class ArmFacts:
    """What an arm is.

    Attributes:
        name: what reports call it.
        drafter: whose arm it is; empty for plain decoding.
        policy: as users write it; ``plain`` and ``oracle`` for the two that they cannot.
        length: verify length that never changes; 0 for plain decoding, None where it does change.
        block_size: most drafts of a round.
    """

    name: str
    drafter: str
    policy: str
    length: int | None
    block_size: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """Figures of one arm at one load; docs/benchmarks.md says what they mean.

    Attributes:
        point, arm: what was measured.
        repeats: segments it rests on.
        tokens_per_second: of all users together.
        user_tokens_per_second: of one user, from the first token on.
        service: tokens per second that a user spends with the engine, waiting included; what arms are compared by.
        over_plain: service over that of plain decoding.
        oracle_share: gain over plain decoding, as a share of the oracle's; None without an oracle that gains.
        first_token: seconds to the first token; None if none was seen.
        token: seconds per further token; None if there was none.
        output_gap: seconds between two outputs of a user; None if there was none.
        rows_per_token: target rows of rounds over tokens they committed.
        accepted_share: accepted drafts over verified ones; None if none were verified.
        verify_len: verified drafts per round.
        attainment: share of requests within the stated latencies; None if none was judged.
        texts, differing: texts compared with those of plain decoding, and how many differ.
    """

    point: Point
    arm: str
    repeats: int
    tokens_per_second: Estimate
    user_tokens_per_second: Estimate
    service: Estimate
    over_plain: Estimate
    oracle_share: Estimate | None
    first_token: Percentiles | None
    token: Percentiles | None
    output_gap: Percentiles | None
    rows_per_token: float
    accepted_share: float | None
    verify_len: float
    attainment: float | None
    texts: int
    differing: int


class LoadFigures:
    """Figures of complete groups of segments.

    Args:
        segments: of each load and repeat either all arms or none.
        arms: what was compared; plain decoding among them.
        plan: sizes.
    """

    def __init__(self, segments: Sequence[Segment], arms: Sequence[ArmFacts], plan: LoadPlan) -> None:
        self.arms = tuple(arms)
        self.points = tuple(dict.fromkeys(segment.point for segment in segments))
        self._plan = plan
        self._segments: dict[tuple[Point, str], list[Segment]] = {}
        for segment in segments:
            self._segments.setdefault((segment.point, segment.arm), []).append(segment)
        self.service = cache(self._service)
        self.ratio = cache(self._ratio)

    def rows(self) -> tuple[Row, ...]:
        """All loads, all arms."""
        return tuple(self._row(point, arm) for point in self.points for arm in self.arms)

    def samples(self, point: Point, arm: str) -> list[Sample]:
        """Segments of an arm at a load, by repeat."""
        return [segment.sample for segment in self._segments[point, arm]]

    def oracle_share(self, point: Point, arm: ArmFacts) -> Bootstrapped | None:
        """See :class:`Row`."""
        bounds = [entry.name for entry in self.arms if entry.policy == ORACLE and entry.drafter == arm.drafter]
        if not bounds or arm.name in bounds:
            return None
        bound = self.ratio(point, bounds[0], PLAIN)
        return share_of_gain(self.ratio(point, arm.name, PLAIN), bound) if bound.value >= LEAST_GAIN else None

    def _service(self, point: Point, arm: str) -> Bootstrapped:
        samples = self.samples(point, arm)
        return self._rate(point, [s.tokens for s in samples], [s.stay_seconds for s in samples])

    def _ratio(self, point: Point, arm: str, base: str) -> Bootstrapped:
        """Service of an arm over that of another."""
        return ratio_of(self.service(point, arm), self.service(point, base))

    def _rate(self, point: Point, amounts: Sequence[float], seconds: Sequence[float]) -> Bootstrapped:
        draws = resamples(len(amounts), self._plan.resamples, self._plan.seed, self.points.index(point))
        return rate_of(amounts, seconds, draws)

    def _row(self, point: Point, arm: ArmFacts) -> Row:
        samples, segments = self.samples(point, arm.name), self._segments[point, arm.name]
        rounds, verified = sum(s.rounds for s in samples), sum(s.verified for s in samples)
        later, judged = sum(s.later_tokens for s in samples), sum(s.judged for s in samples)
        gaps = np.array([gap for s in samples for gap in s.gaps], np.float64).reshape(-1, 2)
        share = self.oracle_share(point, arm)
        return Row(
            point=point,
            arm=arm.name,
            repeats=len(samples),
            tokens_per_second=self._estimate(point, samples, "tokens", "seconds"),
            user_tokens_per_second=self._estimate(point, samples, "later_tokens", "later_seconds"),
            service=self.service(point, arm.name).estimate(),
            over_plain=self.ratio(point, arm.name, PLAIN).estimate(),
            oracle_share=None if share is None else share.estimate(),
            first_token=Percentiles.of(np.array([wait for s in samples for wait in s.first_token])),
            token=Percentiles.of(gaps[:, 0] / gaps[:, 1], gaps[:, 1]),
            output_gap=Percentiles.of(gaps[:, 0]),
            rows_per_token=(rounds + verified) / later if later else float("nan"),
            accepted_share=sum(s.accepted for s in samples) / verified if verified else None,
            verify_len=verified / rounds if rounds else 0.0,
            attainment=sum(s.attained for s in samples) / judged if judged else None,
            texts=sum(segment.texts.texts for segment in segments),
            differing=sum(len(segment.texts.partings) for segment in segments),
        )

    def _estimate(self, point: Point, samples: Sequence[Sample], amount: str, seconds: str) -> Estimate:
        amounts, times = ([getattr(s, name) for s in samples] for name in (amount, seconds))
        return self._rate(point, amounts, times).estimate() if sum(times) else Estimate(value=float("nan"))
