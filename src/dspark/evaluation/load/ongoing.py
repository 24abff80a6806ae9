"""A step policy that outlives engines: what it has learnt goes on from one segment to the next."""

from __future__ import annotations

from dataclasses import replace

from dspark.scheduling import LAG, Reveal, StepOutcome, StepPolicy, StepView
from dspark.scheduling.step_view import Ints


class OngoingPolicy:
    """Passes everything on, with steps and generations counted through all engines.

    Every engine counts from its own beginning, so without this a request of the second engine would pass for one of the
    first.

    Args:
        policy: the policy, made for as many slots as the largest engine has.
    """

    def __init__(self, policy: StepPolicy) -> None:
        self.policy = policy
        self._steps = self._generations = 0
        self._last_step = self._last_generation = -1

    @property
    def name(self) -> str:
        """That of the policy."""
        return self.policy.name

    @property
    def needs_confidence(self) -> bool:
        """As the policy does."""
        return self.policy.needs_confidence

    def next_engine(self) -> None:
        """The engine so far is gone; the next one that asks is another."""
        self._steps = self._last_step + 1 + LAG
        self._generations = self._last_generation + 1

    def begin_step(self, view: StepView) -> Ints:
        """See :class:`StepPolicy`."""
        moved = replace(view, step=view.step + self._steps, generations=view.generations + self._generations)
        self._last_step = max(self._last_step, moved.step)
        self._last_generation = max(self._last_generation, int(moved.generations.max(initial=-1)))
        return self.policy.begin_step(moved)

    def admit(self, reveal: Reveal) -> None:
        """See :class:`StepPolicy`."""
        self.policy.admit(reveal)

    def outcome(self, outcome: StepOutcome) -> None:
        """See :class:`StepPolicy`."""
        self.policy.outcome(
            replace(outcome, step=outcome.step + self._steps, generations=outcome.generations + self._generations)
        )
