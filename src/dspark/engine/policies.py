"""Choosing the policy a user names, with the costs it plans with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dspark.calibration import OnlineCalibration
from dspark.drafters import Drafter
from dspark.engine.costs import find_costs
from dspark.engine.profile_plan import ProfilePlan
from dspark.engine.profiling import Tell
from dspark.scheduling import (
    PLANNED_POLICIES,
    POLICY_FORMS,
    FixedLength,
    StepCosts,
    StepPolicy,
    check_policy,
    make_step_policy,
    policy_name,
)
from dspark.target import LoadedTarget

AUTO_POLICY = "auto"
"""``async`` with a drafter that has a confidence head, else ``fixed``."""

POLICY_NAMES = (AUTO_POLICY, *POLICY_FORMS)
"""The forms in which users name policies."""


@dataclass(frozen=True, kw_only=True)
class ChosenPolicy:
    """A policy and what is said about it.

    Attributes:
        policy: the policy.
        costs: what it plans with; None if it does not.
        notes: one sentence each.
    """

    policy: StepPolicy
    costs: StepCosts | None = None
    notes: tuple[str, ...] = ()


def check_policy_text(policy: str | StepPolicy) -> None:
    """See, before anything is loaded, whether a policy is one.

    Raises:
        InputError: it is not.
    """
    if policy != AUTO_POLICY:
        policy_name(policy)


def choose_policy(
    spec: str | StepPolicy,
    loaded: LoadedTarget,
    drafter: Drafter,
    *,
    costs: str | Path | StepCosts,
    max_requests: int,
    plan: ProfilePlan | None = None,
    tell: Tell,
) -> ChosenPolicy:
    """Make a policy for an engine of a target and a drafter.

    Args:
        spec: one of :data:`POLICY_NAMES`, or a ready policy.
        loaded: the target; it is profiled if the policy needs costs and none are known.
        drafter: the drafter.
        costs: see :func:`~dspark.engine.costs.find_costs`.
        max_requests: most answers in progress.
        plan: how to measure.
        tell: told about the progress of that.

    Raises:
        InputError: there is no such policy, it needs confidences that the drafter does not give, or the costs are none.
    """
    if spec == AUTO_POLICY:
        spec = "async" if drafter.has_confidence else "fixed"
    kind = PLANNED_POLICIES.get(spec.strip()) if isinstance(spec, str) else None
    if kind is None:
        return ChosenPolicy(policy=make_step_policy(spec, block_size=drafter.block_size, num_slots=max_requests))
    if not drafter.block_size:
        return ChosenPolicy(policy=FixedLength(), notes=(f"without drafts there is nothing to plan for {spec!r}",))
    check_policy(kind, drafter.has_confidence, f"drafter {drafter.name!r}")
    found = find_costs(costs, loaded, drafter, plan=plan, tell=tell)
    policy = make_step_policy(spec, found.costs, block_size=drafter.block_size, num_slots=max_requests)
    return ChosenPolicy(policy=policy, costs=found.costs, notes=(f"policy {policy.name!r}", *found.notes))


def choose_online(wanted: bool | None, chosen: ChosenPolicy, drafter: Drafter) -> OnlineCalibration | None:
    """Online calibration: where survivals are planned with, unless it is asked for or forbidden."""
    if wanted is False or not drafter.has_confidence or (wanted is None and chosen.costs is None):
        return None
    return OnlineCalibration(drafter.block_size)
