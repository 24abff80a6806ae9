"""Policies as users write them: ``fixed``, ``fixed:4``, ``threshold:0.5``."""

from __future__ import annotations

from difflib import get_close_matches

from dspark.core import InputError
from dspark.scheduling.confidence_threshold import ConfidenceThreshold
from dspark.scheduling.fixed_length import FixedLength
from dspark.scheduling.policy import VerifyPolicy

POLICY_FORMS = ("fixed", "fixed:K", "threshold:T")
"""The forms :func:`make_policy` reads: K a number of tokens, T a probability."""


def make_policy(text: str | VerifyPolicy) -> VerifyPolicy:
    """Build the policy that a text names; a policy is returned as it is.

    Args:
        text: one of :data:`POLICY_FORMS`, or a ready policy.

    Raises:
        InputError: the text names no policy (the nearest name is shown), or its number is missing or out of range.
    """
    if not isinstance(text, str):
        return _ready(text)
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
