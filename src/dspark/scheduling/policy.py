"""What a verify policy is, and when a drafter can serve it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dspark.core import InputError
from dspark.scheduling.plan_view import PlanView


@runtime_checkable
class VerifyPolicy(Protocol):
    """Decides verify lengths. Must be non-anticipating, else the output distribution is no longer the target's."""

    @property
    def name(self) -> str:
        """How users write it, as :func:`make_policy` reads it."""
        ...

    @property
    def needs_confidence(self) -> bool:
        """Whether it reads ``PlanView.confidence``."""
        ...

    def plan(self, view: PlanView) -> tuple[int, ...]:
        """Verify length of each request, 0 .. ``view.proposed[r]``."""
        ...


def check_policy(policy: VerifyPolicy, has_confidence: bool, drafter: str = "this drafter") -> None:
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
            "use policy 'fixed' or 'fixed:K', or a drafter with a confidence head"
        )
