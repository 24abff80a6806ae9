"""Policies as users write them: ``async``, ``sync``, ``fixed``, ``fixed:4``, ``threshold:0.5``."""

from __future__ import annotations

from difflib import get_close_matches

from dspark.core import InputError
from dspark.scheduling.confidence_threshold import ConfidenceThreshold
from dspark.scheduling.cost_model import StepCosts
from dspark.scheduling.draft_chooser import ChooserOptions
from dspark.scheduling.early_stop import EarlyStop
from dspark.scheduling.fixed_length import FixedLength
from dspark.scheduling.past_capacity import PastCapacity
from dspark.scheduling.step_policy import StepPolicy

PLANNED_POLICIES: dict[str, type[EarlyStop] | type[PastCapacity]] = {"sync": EarlyStop, "async": PastCapacity}
"""Policies that plan with costs, by name."""

POLICY_FORMS = ("async", "sync", "fixed", "fixed:K", "threshold:T")
"""The forms that are read: K a number of tokens, T a probability."""


def make_step_policy(
    text: str | StepPolicy,
    costs: StepCosts | None = None,
    *,
    block_size: int,
    num_slots: int,
    options: ChooserOptions | None = None,
) -> StepPolicy:
    """Build the policy that a text names; a policy is returned as it is.

    Args:
        text: one of :data:`POLICY_FORMS`, or a ready policy.
        costs: of steps; may be None for policies that do not plan with them, see :func:`needs_costs`.
        block_size: most drafts of a request.
        num_slots: most requests in progress.
        options: how ``sync`` and ``async`` decide about drafting.

    Raises:
        InputError: the text names no policy (the nearest name is shown), or its number is missing or out of range.
    """
    if not isinstance(text, str):
        return _ready(text)
    kind = PLANNED_POLICIES.get(text.strip())
    if kind is None:
        return _stateless(text)
    assert costs is not None, f"policy {text!r} plans with the costs of steps"
    return kind(costs, block_size=block_size, num_slots=num_slots, options=options)


def needs_costs(policy: str | StepPolicy) -> bool:
    """Whether building a policy takes the costs of steps."""
    return isinstance(policy, str) and policy.strip() in PLANNED_POLICIES


def policy_name(policy: str | StepPolicy) -> str:
    """The one way to write a policy, for reports; nothing is built for those that plan with costs.

    Raises:
        InputError: as :func:`make_step_policy`.
    """
    if not isinstance(policy, str):
        return _ready(policy).name
    return policy.strip() if needs_costs(policy) else _stateless(policy).name


def _stateless(text: str) -> FixedLength | ConfidenceThreshold:
    name, colon, number = (part.strip() for part in text.partition(":"))
    if name == "fixed":
        return FixedLength(_length(text, number) if colon else None)
    if name == "threshold":
        return ConfidenceThreshold(_threshold(text, number))
    near = get_close_matches(name, [form.partition(":")[0] for form in POLICY_FORMS], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"unknown policy {text!r}; {hint}{_expected()}")


def _expected() -> str:
    return f"expected one of: {', '.join(POLICY_FORMS)}"


def _ready(policy: StepPolicy) -> StepPolicy:
    if isinstance(policy, type) or not isinstance(policy, StepPolicy):
        raise InputError(f"a policy must be a text or a StepPolicy, got {policy!r}; {_expected()}")
    return policy


def _length(text: str, number: str) -> int:
    try:
        return int(number)
    except ValueError:
        raise InputError(f"policy {text!r}: K must be an integer >= 0, got {number!r}; {_expected()}") from None


def _threshold(text: str, number: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise InputError(f"policy {text!r}: T must be a number in [0, 1], got {number!r}; {_expected()}") from None
