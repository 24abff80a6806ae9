"""What the scheduler is doing right now, in numbers to look at."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.calibration import OnlineCalibration, PositionState
from dspark.scheduling import LiveCosts, StepCosts, StepOutcome, StepPolicy


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """The last step.

    Attributes:
        step: its number.
        requests: that decoded in it.
        drafting: of them that drafted.
        rows: target rows.
        context: mean keys that a row saw.
        drafted: drafts of each request, the plan of who drafts.
        verified: those of each that the target looked at, the plan of what is verified.
        predicted_seconds: what such a step should take by the costs as they are now; None without costs.
        measured_seconds: what it took; drafting counts if it was timed.
    """

    step: int
    requests: int
    drafting: int
    rows: int
    context: float
    drafted: tuple[int, ...]
    verified: tuple[int, ...]
    predicted_seconds: float | None
    measured_seconds: float


@dataclass(frozen=True, kw_only=True)
class SchedulingState:
    """The scheduler of an engine.

    Attributes:
        policy: its name.
        point: the last step; None before the first one.
        verify_drift: how many times as long as when they were profiled steps take now; None without refined costs.
        draft_drift: the same of drafting.
        notice: a sentence if the machine is not what it was when it was profiled.
        calibration: what online calibration does at every position; empty if it is off.
    """

    policy: str
    point: OperatingPoint | None
    verify_drift: float | None
    draft_drift: float | None
    notice: str | None
    calibration: tuple[PositionState, ...]


def scheduling_state(
    policy: StepPolicy, outcome: StepOutcome | None, costs: StepCosts | None, online: OnlineCalibration | None
) -> SchedulingState:
    """Look at a scheduler.

    Args:
        policy: the policy.
        outcome: of the last step.
        costs: what the policy plans with.
        online: online calibration.
    """
    live = costs if isinstance(costs, LiveCosts) else None
    return SchedulingState(
        policy=policy.name,
        point=None if outcome is None else _point(outcome, costs),
        verify_drift=None if live is None else live.drift("verify"),
        draft_drift=None if live is None else live.drift("draft"),
        notice=None if live is None else live.notice(),
        calibration=() if online is None else online.state(),
    )


def _point(outcome: StepOutcome, costs: StepCosts | None) -> OperatingPoint:
    return OperatingPoint(
        step=outcome.step,
        requests=len(outcome.slots),
        drafting=outcome.num_drafting,
        rows=outcome.rows,
        context=outcome.context,
        drafted=tuple(outcome.proposed.tolist()),
        verified=tuple(outcome.verified.tolist()),
        predicted_seconds=None if costs is None else _predicted(outcome, costs),
        measured_seconds=outcome.verify_seconds + outcome.draft_seconds,
    )


def _predicted(outcome: StepOutcome, costs: StepCosts) -> float:
    """Seconds of a step like this one; its drafting counts as it does in what was measured."""
    seconds = float(costs.verify_curve(outcome.rows, outcome.context)[outcome.rows])
    if outcome.draft_seconds > 0:
        seconds += float(costs.draft_curve(outcome.num_drafting, outcome.block)[outcome.num_drafting])
    return seconds
