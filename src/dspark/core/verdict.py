"""What verification decided for one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Outcome of one round for one request.

    Attributes:
        accepted: number of draft tokens that survived, 0 .. verify_len.
        next_token: the correction after a rejection, or the bonus when all survived.
    """

    accepted: int
    next_token: int
