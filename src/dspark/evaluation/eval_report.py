"""An evaluation with everything a reader needs to believe or repeat it, and its form on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from dspark.core import InputError
from dspark.evaluation.arms import PLAIN
from dspark.evaluation.eval_arms import EvalArm
from dspark.evaluation.eval_figures import Case, EvalRow, Figures, Summary, cases
from dspark.evaluation.eval_live import LiveSweep
from dspark.evaluation.eval_run import EvalPlan, Turn, count_answers
from dspark.evaluation.files import as_json
from dspark.evaluation.machine import Machine, this_machine
from dspark.evaluation.prompts import PromptSet
from dspark.evaluation.runs import end_token_ids
from dspark.scheduling import policy_name
from dspark.target import LoadedTarget

SCHEMA = "dspark-eval/1"
"""Version of the JSON form; a change that breaks readers raises the number."""


@dataclass(frozen=True, kw_only=True)
class ArmFacts:
    """One drafter.

    Attributes:
        name: what the report calls it.
        drafter: what it was made of, as the user named it.
        kind: name of its design.
        block_size: most tokens of a block; 0 for plain decoding.
        policy: how much of each block was verified.
        has_confidence: whether it has a confidence head.
        temperatures: of the calibration beside its checkpoint; None if there is none.
    """

    name: str
    drafter: str
    kind: str
    block_size: int
    policy: str
    has_confidence: bool
    temperatures: tuple[float, ...] | None

    @classmethod
    def of(cls, arm: EvalArm) -> ArmFacts:
        """Look at an arm."""
        drafter = arm.arm.drafter
        return cls(
            name=arm.name,
            drafter=arm.spec,
            kind=drafter.name,
            block_size=drafter.block_size,
            policy=policy_name(arm.arm.policy),
            has_confidence=drafter.has_confidence,
            temperatures=None if arm.calibration is None else arm.calibration.temperatures,
        )


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """The result of an evaluation.

    Attributes:
        target, dtype, machine, plan, made_at: what was measured, where, how and when.
        arms: the drafters.
        baseline: name of the drafter that the others are compared with.
        prompts: number of prompts of every set.
        complete: whether the plan was carried out; an interrupted run reports the prompts that every arm answered.
        rows: figures per drafter, prompt set and temperature.
        summaries: figures over all prompt sets.
        live: thresholds that were run; empty unless asked for.
    """

    target: str
    dtype: str
    machine: Machine
    plan: EvalPlan
    made_at: str
    arms: tuple[ArmFacts, ...]
    baseline: str
    prompts: Mapping[str, int]
    complete: bool
    rows: tuple[EvalRow, ...]
    summaries: tuple[Summary, ...]
    live: tuple[LiveSweep, ...] = ()

    def to_json(self) -> str:
        """The whole report; figures without a meaning are null."""
        return as_json({"schema": SCHEMA, **asdict(self)})


def check_baseline(baseline: str | None, arms: Sequence[EvalArm]) -> str:
    """The name of the baseline: the one asked for, else the first drafter.

    Raises:
        InputError: there is no arm of this name.
    """
    names = [arm.name for arm in arms]
    if baseline is None:
        return next((name for name in names if name != PLAIN), PLAIN)
    if baseline not in names:
        raise InputError(f"there is no drafter {baseline!r} to compare with; there are {', '.join(names)}")
    return baseline


def make_eval_report(
    turns: Sequence[Turn],
    arms: Sequence[EvalArm],
    sets: Sequence[PromptSet],
    plan: EvalPlan,
    loaded: LoadedTarget,
    *,
    baseline: str,
    live: Sequence[LiveSweep] = (),
) -> EvalReport:
    """Turn measurements into a report.

    Args:
        turns: complete groups, as :func:`dspark.evaluation.eval_run.measure` gives them; at least one.
        arms: the drafters.
        sets: the prompts that were planned.
        plan: how they were measured.
        loaded: the target.
        baseline: name of one of the arms.
        live: thresholds that were run.
    """
    found = cases(turns, arms, [entry.domain for entry in sets], plan)
    figures = Figures(found, plan, end_token_ids(loaded))
    planned = count_answers(arms, sets, plan)
    return EvalReport(
        target=loaded.name,
        dtype=str(loaded.target.dtype).removeprefix("torch."),
        machine=this_machine(),
        plan=plan,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        arms=tuple(ArmFacts.of(arm) for arm in arms),
        baseline=baseline,
        prompts=_answered(found),
        complete=sum(len(case.rounds) for case in found) == planned,
        rows=figures.rows(),
        summaries=figures.summaries(baseline),
        live=tuple(live),
    )


def _answered(found: Sequence[Case]) -> dict[str, int]:
    """Prompts of every set that were answered at any temperature."""
    counts: dict[str, int] = {}
    for case in found:
        counts[case.domain] = max(counts.get(case.domain, 0), len(case.rounds))
    return counts
