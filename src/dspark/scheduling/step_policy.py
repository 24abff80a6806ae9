"""What a step-by-step policy is: how the engine asks, and why it cannot be told too much."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dspark.core import InputError
from dspark.scheduling.reveal import Reveal
from dspark.scheduling.step_view import Ints, StepOutcome, StepView


class PolicyFacts(Protocol):
    """What is known of a policy before it is made: its class says it too."""

    @property
    def name(self) -> str:
        """How users write it."""
        ...

    @property
    def needs_confidence(self) -> bool:
        """Whether it can do nothing without a confidence head."""
        ...


@runtime_checkable
class StepPolicy(PolicyFacts, Protocol):
    """Decides how much is drafted and how much of that is verified, once per engine step.

    The engine calls, in this order, for every step in which somebody decodes:

    1. ``lengths = policy.begin_step(view)``: drafts wanted of each request, before anything is drafted. All zero means
       that the drafter is not called at all, and then ``admit`` is not either.
    2. the drafter proposes at most that much; ``reveal = Reveal(proposed, confidence)`` with the confidences as they
       are to be believed, calibrated (None without a confidence head).
    3. ``policy.admit(reveal)``; then ``reveal.lengths`` is the plan.
    4. after judging, ``policy.outcome(outcome)``; steps of prefill alone have one too. It may come before or after the
       ``begin_step`` of the next step, but before that of the step after it; what is planned is the same either way,
       because outcomes are used when they are :data:`~dspark.scheduling.step_view.LAG` steps old. A step that failed
       has no outcome and may be begun anew.

    Information can flow only like this: ``begin_step`` sees no confidence of its own step, and what it decides comes
    from finished steps. ``admit`` sees confidences through a :class:`Reveal` only, which keeps every use of them
    lossless.
    """

    def begin_step(self, view: StepView) -> Ints:
        """[R] drafts wanted of each request, 0 .. ``view.limits``."""
        ...

    def admit(self, reveal: Reveal) -> None:
        """Admit drafts of the step begun last."""
        ...

    def outcome(self, outcome: StepOutcome) -> None:
        """Take note of a finished step."""
        ...


def check_policy(policy: PolicyFacts, has_confidence: bool, drafter: str = "this drafter") -> None:
    """Refuse a policy that would read confidences nobody computes.

    Args:
        policy: the policy.
        has_confidence: whether the drafter has a confidence head.
        drafter: what the message calls the drafter.

    Raises:
        InputError: the policy needs confidences and there are none.
    """
    if policy.needs_confidence and not has_confidence:
        raise InputError(
            f"policy {policy.name!r} needs a drafter with a confidence head, and {drafter} has none; "
            "use policy 'async', 'fixed' or 'fixed:K', or a drafter with a confidence head"
        )
