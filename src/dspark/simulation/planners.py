"""Who decides in a simulated step: a policy as it runs in the engine, or the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dspark.core import InputError
from dspark.evaluation.load.figures import ORACLE
from dspark.scheduling import (
    CostModel,
    LiveCosts,
    Reveal,
    StepOutcome,
    StepPolicy,
    StepView,
    make_step_policy,
    oracle_lengths,
)
from dspark.scheduling.step_view import Floats, Ints
from dspark.simulation.texts import Blocks


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """What is drafted and verified in a step. R requests that decode in it.

    Attributes:
        wanted: [R] tokens that the drafter is asked for; prompts get the rows that are left.
        proposed: [R] drafted tokens.
        verified: [R] drafts that go to the target.
        stated: [R, G] survivals that the confidence head stated, below 0 past the blocks; None without one.
    """

    wanted: Ints
    proposed: Ints
    verified: Ints
    stated: Floats | None = None


class Planner(Protocol):
    """Decides steps of one replica."""

    def begin(self, view: StepView) -> Ints:
        """[R] most drafts that will be wanted of each request."""
        ...

    def plan(self, view: StepView, wanted: Ints, blocks: Blocks) -> StepPlan:
        """Draft, and choose among the drafts.

        Args:
            view: the step.
            wanted: what :meth:`begin` gave.
            blocks: what drafting gives.
        """
        ...

    def outcome(self, outcome: StepOutcome) -> None:
        """Take note of a finished step."""
        ...


class PolicyPlanner:
    """Runs a policy through the calls that the engine makes.

    Args:
        policy: made for the slots of one replica.
    """

    def __init__(self, policy: StepPolicy) -> None:
        self._policy = policy

    def begin(self, view: StepView) -> Ints:
        """See :class:`Planner`."""
        return self._policy.begin_step(view)

    def plan(self, view: StepView, wanted: Ints, blocks: Blocks) -> StepPlan:
        """See :class:`Planner`."""
        proposed = np.minimum(wanted, blocks.proposed)
        if not proposed.any():
            return StepPlan(wanted=wanted, proposed=proposed, verified=proposed)
        reveal = Reveal(proposed, blocks.confidence)
        self._policy.admit(reveal)
        return StepPlan(wanted=wanted, proposed=proposed, verified=reveal.lengths, stated=reveal.close())

    def outcome(self, outcome: StepOutcome) -> None:
        """See :class:`Planner`."""
        self._policy.outcome(outcome)


class OraclePlanner:
    """Knows what would be accepted, and the true costs.

    Args:
        costs: of steps.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs

    def begin(self, view: StepView) -> Ints:
        """See :class:`Planner`."""
        return view.limits

    def plan(self, view: StepView, wanted: Ints, blocks: Blocks) -> StepPlan:
        """See :class:`Planner`."""
        lengths = oracle_lengths(np.minimum(blocks.would_accept, wanted), view, self._costs)
        return StepPlan(wanted=lengths, proposed=lengths, verified=lengths)

    def outcome(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""


def make_planner(
    policy: str, costs: CostModel, *, block_size: int, num_slots: int, has_confidence: bool = True
) -> Planner:
    """The planner that a text names: :data:`ORACLE`, or a policy, which plans with costs that follow the machine.

    Args:
        policy: what is named.
        costs: as they were profiled.
        block_size: most drafts of a request.
        num_slots: most requests in progress.
        has_confidence: whether there is a confidence head.

    Raises:
        InputError: the text names neither, or a policy that needs a confidence head where there is none.
    """
    if policy == ORACLE:
        return OraclePlanner(costs)
    made = make_step_policy(policy, LiveCosts(costs), block_size=block_size, num_slots=num_slots)
    if made.needs_confidence and not has_confidence:
        raise InputError(
            f"policy {policy!r} needs a confidence head, and these texts have none; use 'fixed:K', 'async' or 'oracle'"
        )
    return PolicyPlanner(made)
