"""What a pass over a training batch returns, whatever the drafter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LossSums:
    """Losses of one pass, summed over slots and not divided by anything, and the acceptance behind them.

    Sums, because gradients are normalised over the global batch: all micro-batches of all ranks.

    Attributes:
        loss: scalar with gradient, sum over slots of weight * terms.
        weight: scalar, sum of the slots' weights.
        terms: weighted sums of single terms by name (``ce``, ``kl``, ``tv``, ``confidence``, ``balance``), without
            gradient and without their factors.
        accept: [blocks, G] float32 probability that the slot's draft is accepted, 1 - L1 / 2.
        hit: [blocks, G] float32, 1 where the draft's most likely token is the one that follows. Both are 0 where
            a slot does not count.
        mask: [blocks, G] bool slots that count.
    """

    loss: Tensor
    weight: Tensor
    terms: Mapping[str, Tensor]
    accept: Tensor
    hit: Tensor
    mask: Tensor
