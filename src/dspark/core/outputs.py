"""Facts about emitted tokens that travel to the user."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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


class Piece(NamedTuple):
    """Some text of one token.

    Attributes:
        text: the text.
        origin: who wrote the token.
        confidence: how sure the drafter was of its draft in the token's place, as the policy saw it: of the token
            itself where it was drafted, of the draft that was rejected where the target corrected it; None where the
            target looked at no draft, or the drafter gives no confidence.
    """

    text: str
    origin: TokenOrigin
    confidence: float | None = None


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
