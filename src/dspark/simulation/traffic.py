"""Made-up traffic as users write it: how long texts are, and what drafts are worth in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark.core import InputError
from dspark.scheduling.step_view import Ints
from dspark.simulation.drawn_texts import AcceptanceLaw, ConfidenceLaw, Difficulty, DrawnTexts
from dspark.simulation.spelling import number
from dspark.simulation.texts import Lengths

_TAIL = 16
"""A drawn length is at most this many times the stated one."""

TOKEN_SPREAD = 2.0
"""How much the tokens of a text differ where nothing else is said, in logits."""

_CONCENTRATION = 12.0

KINDS = {"math": 0.955, "code": 0.939, "chat": 0.843}
"""Acceptance at a token of middling difficulty, for three kinds of text.

Fitted so that blocks of 7, verified whole, give the accepted lengths of the method's reference for Qwen3-4B (section 7:
5.57, 5.12 and 3.49 tokens a round on average over the sets of a kind).
"""

MIXED = "mixed"
"""All three kinds in equal shares."""


@dataclass(frozen=True, kw_only=True)
class LengthLaw:
    """How many tokens.

    Attributes:
        text: ``N``, ``A-B`` (any number from A to B), ``exponential:MEAN`` or ``lognormal:MEDIAN:SIGMA``.

    Raises:
        InputError: it has another form, or asks for less than one token.
    """

    text: str

    def __post_init__(self) -> None:
        self.draw(1, np.random.default_rng(0))

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        """[count] lengths, each at least 1."""
        name, *values = self.text.split(":")
        match name, len(values):
            case "exponential", 1:
                return self._cut(rng.exponential(1.0, count), values[0])
            case "lognormal", 2:
                sigma = number("sigma of a lognormal length", values[1], float)
                if not 0 <= sigma <= 10:
                    raise InputError(f"sigma of a lognormal length must be in 0 .. 10, got {sigma}")
                return self._cut(rng.lognormal(0.0, sigma, count), values[0])
            case _, 0:
                first, dash, last = name.partition("-")
                low = self._whole(first)
                high = self._whole(last) if dash else low
                if high >= low:
                    return rng.integers(low, high + 1, count)
        raise InputError(
            f"a length must be N, A-B with A <= B, exponential:MEAN or lognormal:MEDIAN:SIGMA, got {self.text!r}"
        )

    def _cut(self, factors: np.ndarray, stated: str) -> Ints:
        middle = self._whole(stated)
        return np.rint(middle * factors).clip(1, _TAIL * middle).astype(np.int64)

    def _whole(self, text: str) -> int:
        found = number(f"the length {self.text!r}", text, int)
        if found < 1:
            raise InputError(f"a length must be at least one token, got {self.text!r}")
        return found


def read_acceptance(
    text: str, block_size: int, *, token_spread: float | None = None, confidence: ConfidenceLaw | None
) -> AcceptanceLaw:
    """The law that a text names.

    Args:
        text: parts with commas between, each ``KIND`` (one of :data:`KINDS`) or ``MEAN`` or ``MEAN:CONCENTRATION``,
            and ``*WEIGHT`` behind it if they are not equally frequent; or :data:`MIXED`.
        block_size: slots of a block.
        token_spread: how much tokens differ, in logits; None for :data:`TOKEN_SPREAD`.
        confidence: the confidence head; None for none.

    Raises:
        InputError: it names none.
    """
    parts = tuple(_part(part.strip()) for part in (",".join(KINDS) if text == MIXED else text).split(","))
    if block_size < 1:
        raise InputError(f"the block size must be at least 1, got {block_size}")
    return AcceptanceLaw(
        parts=parts,
        shift=(0.0,) * block_size,
        token_spread=TOKEN_SPREAD if token_spread is None else token_spread,
        confidence=confidence,
    )


def _part(text: str) -> Difficulty:
    name, star, weight = (word.strip() for word in text.partition("*"))
    share = number(f"the weight of {text!r}", weight, float) if star else 1.0
    if name in KINDS:
        return Difficulty(mean=KINDS[name], concentration=_CONCENTRATION, weight=share)
    mean, colon, spread = name.partition(":")
    try:
        return Difficulty(
            mean=float(mean),
            concentration=number(f"the concentration of {text!r}", spread, float) if colon else None,
            weight=share,
        )
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"acceptance must be {', '.join(KINDS)}, {MIXED}, MEAN or MEAN:CONCENTRATION, got {text!r}"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Requests to be drawn.

    Attributes:
        prompt, answer: lengths.
        law: of acceptance.
        seed: of everything drawn.
    """

    prompt: LengthLaw
    answer: LengthLaw
    law: AcceptanceLaw
    seed: int = 0

    def draw(self, count: int) -> DrawnTexts:
        """The first requests; their limits are the longest of these answers."""
        rng = np.random.default_rng(self.seed)
        prompt, answer = self.prompt.draw(count, rng), self.answer.draw(count, rng)
        limit = np.full(count, int(answer.max(initial=1)))
        return DrawnTexts(Lengths(prompt=prompt, answer=answer, max_tokens=limit), self.law, self.seed)
