"""What a step-by-step policy is: how the engine asks, and why it cannot be told too much."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dspark.scheduling.reveal import Reveal
from dspark.scheduling.step_view import Ints, StepOutcome, StepView


@runtime_checkable
class StepPolicy(Protocol):
    """Decides how much is drafted and how much of that is verified, once per engine step.

    The engine calls, in this order, for every step in which somebody decodes:

    1. ``lengths = policy.begin_step(view)``: drafts wanted of each request, before anything is drafted. All zero means
       that the drafter is not called at all.
    2. the drafter proposes at most that much; ``reveal = Reveal(proposed, confidence)`` with the confidences as they
       are to be believed, calibrated (None without a confidence head).
    3. ``policy.admit(reveal)``; then ``reveal.lengths`` is the plan.
    4. after judging, ``policy.outcome(outcome)``. It may come before or after the ``begin_step`` of the next step, but
       before that of the step after it; what is planned is the same either way, because outcomes are used when they are
       :data:`~dspark.scheduling.step_view.LAG` steps old. A step that failed has no outcome and may be begun anew.

    Information can flow only like this: ``begin_step`` sees no confidence of its own step, and what it decides comes
    from finished steps. ``admit`` sees confidences through a :class:`Reveal` only, which keeps every use of them
    lossless.
    """

    @property
    def name(self) -> str:
        """How users write it."""
        ...

    @property
    def needs_confidence(self) -> bool:
        """Whether it can do nothing without a confidence head."""
        ...

    def begin_step(self, view: StepView) -> Ints:
        """[R] drafts wanted of each request, 0 .. ``view.limits``."""
        ...

    def admit(self, reveal: Reveal) -> None:
        """Admit drafts of the step begun last."""
        ...

    def outcome(self, outcome: StepOutcome) -> None:
        """Take note of a finished step."""
        ...
