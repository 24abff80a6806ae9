"""What a simulated request is: a prompt and an answer of known lengths, and what would become of drafts at its places.

A text says beforehand, for every place in it, what a block drafted there would be worth. So all policies meet the same
texts, and a difference between two of them is never one of luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dspark.core import InputError
from dspark.scheduling.step_view import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Blocks drafted for R requests in a step, G slots each.

    Attributes:
        proposed: [R] drafts that there are if as many as possible are wanted, 0 .. G.
        would_accept: [R] how many would be kept if all were verified, at most ``proposed``.
        confidence: [R, G] what the confidence head says of each; None without one.
    """

    proposed: Ints
    would_accept: Ints
    confidence: Floats | None


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Sizes of M texts.

    Attributes:
        prompt: [M] tokens of the prompt, at least 1.
        answer: [M] tokens of the answer, at least 1.
        max_tokens: [M] limit that its request names, at least as much: drafting stops at the limit, but nobody knows
            beforehand that an answer ends earlier.

    Raises:
        InputError: a length is below 1, or an answer is above its limit.
    """

    prompt: Ints
    answer: Ints
    max_tokens: Ints

    def __post_init__(self) -> None:
        shapes = {self.prompt.shape, self.answer.shape, self.max_tokens.shape}
        assert shapes == {(len(self.prompt),)}, f"lengths must be [M], got {shapes}"
        if len(self) and min(int(self.prompt.min()), int(self.answer.min())) < 1:
            raise InputError("prompts and answers must have at least one token")
        if (self.answer > self.max_tokens).any():
            raise InputError("an answer is longer than max_tokens allows")

    def __len__(self) -> int:
        return len(self.prompt)

    def take(self, texts: NDArray[np.int64]) -> Lengths:
        """Those of some of the texts, which may repeat."""
        return Lengths(prompt=self.prompt[texts], answer=self.answer[texts], max_tokens=self.max_tokens[texts])


class Texts(Protocol):
    """M texts; request m of a simulation is text m."""

    @property
    def lengths(self) -> Lengths:
        """Their sizes."""
        ...

    @property
    def block_size(self) -> int:
        """G."""
        ...

    @property
    def has_confidence(self) -> bool:
        """Whether blocks come with confidences."""
        ...

    def blocks(self, texts: Ints, outputs: Ints, rounds: Ints) -> Blocks:
        """Blocks drafted behind an anchor.

        Args:
            texts: [R] which texts.
            outputs: [R] tokens of each answer so far, the anchor included: 1 .. answer length - 1.
            rounds: [R] rounds that each answer had before this one.
        """
        ...
