"""A step policy where only verify lengths are asked for, step by step and without a memory."""

from __future__ import annotations

import numpy as np

from dspark.scheduling.plan_view import PlanView
from dspark.scheduling.reveal import Reveal
from dspark.scheduling.step_policy import StepPolicy
from dspark.scheduling.step_view import StepView


class PlanOnly:
    """Makes a :class:`VerifyPolicy` of a :class:`StepPolicy`: every request is a fresh one in every step.

    What it would not have drafted is not verified. It learns nothing, as it is told no outcomes.

    Args:
        policy: made for at least as many slots as a step has requests.
    """

    def __init__(self, policy: StepPolicy) -> None:
        self._policy, self._step, self._generation = policy, 0, 0

    @property
    def name(self) -> str:
        """That of the policy."""
        return self._policy.name

    @property
    def needs_confidence(self) -> bool:
        """As the policy does."""
        return self._policy.needs_confidence

    def plan(self, view: PlanView) -> tuple[int, ...]:
        """Verify length of each request."""
        requests = len(view.proposed)
        generations = np.arange(self._generation, self._generation + requests)
        self._step, self._generation = self._step + 1, self._generation + requests
        wanted = self._policy.begin_step(
            StepView(
                step=self._step,
                slots=np.arange(requests),
                generations=generations,
                limits=np.array(view.proposed, np.int64),
                num_prefill_rows=view.num_prefill_rows,
            )
        )
        reveal = Reveal(np.minimum(wanted, view.proposed), None if view.confidence is None else view.confidence_array())
        self._policy.admit(reveal)
        return tuple(reveal.lengths.tolist())
