"""Policies as users write them: ``fixed``, ``fixed:4``, ``threshold:0.5``."""

from __future__ import annotations

from difflib import get_close_matches

from dspark.core import InputError
from dspark.scheduling.confidence_threshold import ConfidenceThreshold
from dspark.scheduling.cost_model import StepCosts
from dspark.scheduling.draft_chooser import ChooserOptions
from dspark.scheduling.early_stop import EarlyStop
from dspark.scheduling.fixed_length import FixedLength
from dspark.scheduling.past_capacity import PastCapacity
from dspark.scheduling.policy import VerifyPolicy
from dspark.scheduling.step_policy import StepPolicy

POLICY_FORMS = ("fixed", "fixed:K", "threshold:T")
"""The forms :func:`make_policy` reads: K a number of tokens, T a probability."""

STEP_POLICY_FORMS = (*POLICY_FORMS, "sync", "async")
"""The forms :func:`make_step_policy` reads."""


def make_step_policy(
    text: str | StepPolicy,
    costs: StepCosts,
    *,
    block_size: int,
    num_slots: int,
    options: ChooserOptions | None = None,
) -> StepPolicy:
    """Build the policy that a text names; a policy is returned as it is.

    Args:
        text: one of :data:`STEP_POLICY_FORMS`, or a ready policy.
        costs: of steps, for those that plan with them.
        block_size: most drafts of a request.
        num_slots: most requests in progress.
        options: how ``sync`` and ``async`` decide about drafting.

    Raises:
        InputError: the text names no policy, or its number is missing or out of range.
    """
    if not isinstance(text, str):
        if isinstance(text, type) or not isinstance(text, StepPolicy):
            raise InputError(f"a policy must be a text or a StepPolicy, got {text!r}; {_expected(STEP_POLICY_FORMS)}")
        return text
    if text.strip() == "sync":
        return EarlyStop(costs, block_size=block_size, num_slots=num_slots, options=options)
    if text.strip() == "async":
        return PastCapacity(costs, block_size=block_size, num_slots=num_slots, options=options)
    return _stateless(text, STEP_POLICY_FORMS)


def make_policy(text: str | VerifyPolicy) -> VerifyPolicy:
    """Build the policy that a text names; a policy is returned as it is.

    Args:
        text: one of :data:`POLICY_FORMS`, or a ready policy.

    Raises:
        InputError: the text names no policy (the nearest name is shown), or its number is missing or out of range.
    """
    if not isinstance(text, str):
        return _ready(text)
    return _stateless(text, POLICY_FORMS)


def _stateless(text: str, forms: tuple[str, ...]) -> FixedLength | ConfidenceThreshold:
    name, colon, number = (part.strip() for part in text.partition(":"))
    if name == "fixed":
        return FixedLength(_length(text, number) if colon else None)
    if name == "threshold":
        return ConfidenceThreshold(_threshold(text, number))
    near = get_close_matches(name, [form.partition(":")[0] for form in forms], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"unknown policy {text!r}; {hint}{_expected(forms)}")


def _expected(forms: tuple[str, ...] = POLICY_FORMS) -> str:
    return f"expected one of: {', '.join(forms)}"


def _ready(policy: VerifyPolicy) -> VerifyPolicy:
    if isinstance(policy, type) or not isinstance(policy, VerifyPolicy):
        raise InputError(f"a policy must be a text or a VerifyPolicy, got {policy!r}; {_expected()}")
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
