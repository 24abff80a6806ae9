"""Confidence thresholds that the engine really runs with, next to what recorded rounds say about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dspark.evaluation.acceptance import count_rounds, flat
from dspark.evaluation.eval_arms import EvalArm
from dspark.evaluation.eval_figures import Case, cases
from dspark.evaluation.eval_run import EvalPlan, Turn
from dspark.evaluation.threshold_sweep import THRESHOLDS, SweepPoint


@dataclass(frozen=True, kw_only=True)
class LiveArm:
    """A drafter with one threshold.

    Attributes:
        of: name of the drafter.
        threshold: of its policy.
        arm: how it decodes.
    """

    of: str
    threshold: float
    arm: EvalArm


@dataclass(frozen=True, kw_only=True)
class LiveSweep:
    """Thresholds that were run on one prompt set at one temperature."""

    arm: str
    domain: str
    temperature: float
    points: tuple[SweepPoint, ...]


def live_arms(arms: Sequence[EvalArm]) -> tuple[LiveArm, ...]:
    """Every drafter that has confidences, once per threshold."""
    return tuple(
        LiveArm(of=arm.name, threshold=threshold, arm=_with_threshold(arm, threshold))
        for arm in arms
        if arm.arm.drafter.has_confidence
        for threshold in THRESHOLDS
    )


def live_sweeps(
    turns: Sequence[Turn], arms: Sequence[LiveArm], domains: Sequence[str], plan: EvalPlan
) -> tuple[LiveSweep, ...]:
    """Figures of complete groups of turns of these arms."""
    points: dict[tuple[str, str, float], list[SweepPoint]] = {}
    for arm in arms:
        for case in cases(turns, [arm.arm], domains, plan):
            points.setdefault((arm.of, case.domain, case.temperature), []).append(_point(case, arm.threshold))
    return tuple(
        LiveSweep(arm=arm, domain=domain, temperature=temperature, points=tuple(found))
        for (arm, domain, temperature), found in points.items()
    )


def _with_threshold(arm: EvalArm, threshold: float) -> EvalArm:
    policy = f"threshold:{threshold}"
    return replace(arm, arm=replace(arm.arm, name=f"{arm.name} {policy}", policy=policy))


def _point(case: Case, threshold: float) -> SweepPoint:
    counts = count_rounds(flat(case.rounds), case.arm.block_size)
    return SweepPoint(
        threshold=threshold,
        rounds=counts.rounds,
        acceptance_rate=counts.acceptance_rate,
        verify_len=counts.verified / max(counts.rounds, 1),
        tau=counts.tau,
        tokens_per_second=case.tokens_per_second,
    )
