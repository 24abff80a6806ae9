"""How close a call was: the distance between the target's logits of two tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dspark.core import SamplingParams
from dspark.engine import LLM

NEAR_TIE = 1e-4
"""Largest logit margin (float32) at which a difference counts as a tie and not as a fault."""

_PULL = 100.0  # the strongest bias there is, so that a step emits the token whose log probability is wanted


def is_near_tie(margin: float | None) -> bool:
    """Whether rounding in float32 explains a difference; it does not explain one without a margin."""
    return margin is not None and margin < NEAR_TIE


@dataclass(frozen=True, kw_only=True)
class TokenDifference:
    """Where a text left that of plain decoding.

    Attributes:
        position: first differing position, counted in generated tokens.
        expected: token of plain decoding there; None if its text had ended.
        got: the other text's token there; None if that had ended.
        margin: distance of their logits under the target; None where a text had ended, or was not looked at.
    """

    position: int
    expected: int | None
    got: int | None
    margin: float | None

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding explains it."""
        return is_near_tie(self.margin)


def logit_margin(llm: LLM, context: Sequence[int], first: int, second: int) -> float:
    """Distance of two tokens' logits after ``context`` under the target, computed afresh.

    Log probabilities of one row differ by what the logits differ by, so the engine's own are used.

    Args:
        llm: any engine over the target; its drafter plays no part.
        context: token ids before the position, at least one.
        first: a token.
        second: another.

    Returns:
        ``|logit(first) - logit(second)|``; infinite if they are so far apart that no bias makes up for it.
    """
    pulls = [
        SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, logit_bias={token: _PULL}, logprobs=0)
        for token in (first, second)
    ]
    answers = [output.outputs[0] for output in llm.generate([list(context)] * 2, pulls, progress=False)]
    if [answer.token_ids[0] for answer in answers] != [first, second]:
        return math.inf
    found = [answer.logprobs[0].logprob for answer in answers if answer.logprobs]
    return abs(found[0] - found[1])


def first_difference(got: Sequence[int], expected: Sequence[int]) -> int | None:
    """First position at which two texts differ, one being shorter included; None if they are the same."""
    shorter = min(len(got), len(expected))
    place = next((place for place in range(shorter) if got[place] != expected[place]), shorter)
    return None if place == len(got) == len(expected) else place
