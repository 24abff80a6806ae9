"""Texts drawn from a stated law of acceptance and confidence.

Token t of text m has the logit ``z[m, t] = logit(d[m]) + token_spread * N(0, 1)``, where the text's difficulty d[m]
comes from a mixture of Beta laws. Drafted in slot j, with all before it accepted, it is accepted with probability
``p = sigmoid(z[m, t] + shift[j])``: whether it is depends on a number drawn for that token, and a token is
verified at most once with all before it accepted, so the outcome is a fresh one whatever a policy did before.

The confidence head says ``sigmoid((z[m, t] + shift[j] + noise * N(0, 1)) / temperature + offset)``: with noise 0,
temperature 1 and offset 0 that is the probability itself (calibrated, as sharp as can be); noise makes it less sharp,
the others make it wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dspark.core import InputError
from dspark.scheduling.step_view import Floats, Ints
from dspark.simulation.texts import Blocks, Lengths

_EDGE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """One part of a mixture of texts.

    Attributes:
        mean: acceptance of the first draft, in [0, 1], at a token of middling difficulty.
        concentration: of the Beta law around it over texts, above 0; None for none: all texts are alike.
        weight: share of the texts, relative to the other parts.

    Raises:
        InputError: a number is out of range.
    """

    mean: float
    concentration: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.mean <= 1:
            raise InputError(f"acceptance must be in [0, 1], got {self.mean}")
        if self.concentration is not None and not 0 < self.concentration < math.inf:
            raise InputError(f"the concentration of acceptance must be above 0, got {self.concentration}")
        if not 0 < self.weight < math.inf:
            raise InputError(f"the weight of a part of the texts must be above 0, got {self.weight}")

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """[count] difficulties."""
        if self.concentration is None or self.mean in (0.0, 1.0):
            return np.full(count, self.mean)
        return rng.beta(self.mean * self.concentration, (1 - self.mean) * self.concentration, count)


@dataclass(frozen=True, kw_only=True)
class ConfidenceLaw:
    """How far the confidence head is from the truth, in logits.

    Attributes:
        noise: standard deviation of what it does not see, >= 0.
        temperature: it divides by this; below 1 it is too sure of itself either way.
        offset: it adds this; above 0 it promises too much.

    Raises:
        InputError: a number is out of range.
    """

    noise: float = 0.0
    temperature: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.noise < math.inf or not 0 < self.temperature < math.inf or not math.isfinite(self.offset):
            raise InputError(
                "of a confidence law, noise must be >= 0, temperature above 0 and offset a number, got "
                f"{self.noise}, {self.temperature} and {self.offset}"
            )


@dataclass(frozen=True, kw_only=True)
class AcceptanceLaw:
    """What drafts are worth.

    Attributes:
        parts: of the mixture, at least one.
        shift: [G] logits by which acceptance changes from slot to slot.
        token_spread: how much the tokens of a text differ, in logits.
        confidence: the confidence head; None for none.

    Raises:
        InputError: a number is out of range.
    """

    parts: tuple[Difficulty, ...]
    shift: tuple[float, ...]
    token_spread: float = 0.0
    confidence: ConfidenceLaw | None = ConfidenceLaw()

    def __post_init__(self) -> None:
        if not self.parts or not self.shift:
            raise InputError("a law of acceptance needs at least one part and one slot")
        if not 0 <= self.token_spread < math.inf or not all(map(math.isfinite, self.shift)):
            raise InputError("token_spread must be >= 0 and every shift a number")

    @classmethod
    def constant(cls, acceptance: float, block_size: int) -> AcceptanceLaw:
        """Every draft is accepted with the same probability."""
        return cls(parts=(Difficulty(mean=acceptance),), shift=(0.0,) * block_size)

    def difficulties(self, count: int, rng: np.random.Generator) -> Floats:
        """[count] difficulties of texts; the parts are dealt out in proportion, in random order."""
        shares = np.cumsum([part.weight for part in self.parts])
        ends = np.round(count * shares / shares[-1]).astype(int).tolist()
        drawn = [
            part.draw(end - start, rng) for part, (start, end) in zip(self.parts, pairwise([0, *ends]), strict=True)
        ]
        return rng.permutation(np.concatenate(drawn))


class DrawnTexts:
    """Texts of given lengths under a law.

    Args:
        lengths: of M texts.
        law: of acceptance.
        seed: of everything drawn.
    """

    def __init__(self, lengths: Lengths, law: AcceptanceLaw, seed: int) -> None:
        self.lengths, self.block_size, self._law = lengths, len(law.shift), law
        rng, rooms = np.random.default_rng(seed), lengths.answer + self.block_size
        self._starts = np.cumsum(rooms) - rooms
        total = int(rooms.sum())
        middle = np.repeat(_logit(law.difficulties(len(lengths), rng)), rooms)
        self._ease: NDArray[np.float32] = (middle + law.token_spread * rng.standard_normal(total)).astype(np.float32)
        # A logistic variable below z has probability sigmoid(z).
        self._bar: NDArray[np.float32] = _logit(rng.random(total)).astype(np.float32)
        noise = 0.0 if law.confidence is None else law.confidence.noise
        self._seen = self._ease if not noise else self._ease + (noise * rng.standard_normal(total)).astype(np.float32)
        self._shift, self._slots = np.array(law.shift, np.float32), np.arange(self.block_size)

    @property
    def has_confidence(self) -> bool:
        """See :class:`~dspark.simulation.texts.Texts`."""
        return self._law.confidence is not None

    def blocks(self, texts: Ints, outputs: Ints, rounds: Ints) -> Blocks:
        """See :class:`~dspark.simulation.texts.Texts`."""
        places = (self._starts[texts] + outputs)[:, None] + self._slots
        hits = self._bar[places] < self._ease[places] + self._shift
        return Blocks(
            proposed=np.full(len(texts), self.block_size),
            would_accept=_leading(hits),
            confidence=self._confidence(places),
        )

    def _confidence(self, places: Ints) -> Floats | None:
        law = self._law.confidence
        if law is None:
            return None
        logits = (self._seen[places] + self._shift).astype(np.float64) / law.temperature + law.offset
        confidence: Floats = 1 / (1 + np.exp(-logits))
        return confidence


def _leading(hits: NDArray[np.bool_]) -> Ints:
    """[R] how many entries of each row come before the first that is False."""
    return np.where(hits.all(axis=1), hits.shape[1], np.argmin(hits, axis=1))


def _logit(probability: Floats) -> Floats:
    """Logits; those of 0 and 1 are beyond whatever is drawn."""
    inside = np.clip(probability, _EDGE, 1 - _EDGE)
    odds: Floats = np.log(inside) - np.log1p(-inside)
    return np.where(probability <= 0, -100.0, np.where(probability >= 1, 100.0, odds))
