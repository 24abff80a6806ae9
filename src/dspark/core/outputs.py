"""Facts about emitted tokens that travel to the user."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class TokenOrigin(StrEnum):
    """Who wrote a token: the drafter (verified by the target), or the target itself."""

    DRAFT = "draft"
    CORRECTION = "correction"
    BONUS = "bonus"
    PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class TokenLogprobs:
    """Natural-log probabilities of one emitted token under the target's unwarped distribution.

    Attributes:
        token: the emitted id.
        logprob: its log probability.
        top: (id, log probability) of the most likely tokens, best first; as many as were asked for.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
