"""The random numbers of one round, by purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark.core.uniform import uniforms

DRAFT, ACCEPT, EMIT = 0, 1, 2
"""Streams: drawing the drafts, accepting them, drawing the correction or bonus. No number serves two purposes."""


@dataclass(frozen=True, kw_only=True)
class RoundUniforms:
    """Uniforms in [0, 1) of R requests for one round of blocks of up to G tokens.

    Attributes:
        draft: [R, G] for drawing the block.
        accept: [R, G] for accepting it.
        emit: [R] for the correction or bonus token.
    """

    draft: np.ndarray
    accept: np.ndarray
    emit: np.ndarray

    @classmethod
    def of(cls, seeds: Sequence[int], rounds: Sequence[int], length: int) -> RoundUniforms:
        """Numbers of each request's own seed (taken modulo 2^64) and round.

        Those of slot j depend on neither ``length`` nor the batch. Which number meets which token does depend on where
        rounds begin: another drafter or other verify lengths turn a seed into another sample of the same law.
        """
        seed = np.array([int(s) % 2**64 for s in seeds], np.uint64)
        counter = np.array(rounds, np.uint64)
        return cls(
            draft=uniforms(seed, counter, DRAFT, length),
            accept=uniforms(seed, counter, ACCEPT, length),
            emit=uniforms(seed, counter, EMIT, 1)[:, 0],
        )
