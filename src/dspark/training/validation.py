"""Simulated acceptance on sequences that are held back from training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dspark.data.corpus import Corpus
from dspark.training.anchors import anchor_candidates
from dspark.training.metrics import Acceptance, acceptance, round_starts
from dspark.training.ranks import Ranks
from dspark.training.replica import Replica
from dspark.training.trainee import Trainee


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Simulated acceptance: sampled (T = 1) over all sequences, greedy over those written greedily."""

    sampled: Acceptance
    greedy: Acceptance

    @property
    def tau(self) -> float:
        """What checkpoints are compared by: greedy tau, or the sampled one where nothing was written greedily."""
        return self.greedy.tau if self.greedy.blocks else self.sampled.tau


class _Part(NamedTuple):
    """Blocks of one micro-batch, on the CPU, and how likely a round starts at each."""

    accept: Tensor
    hit: Tensor
    mask: Tensor
    sampled_starts: Tensor
    greedy_starts: Tensor
    cold: bool


class Validator:
    """Walks through the beginnings of the same sequences every time, as an engine would; processes take turns."""

    def __init__(
        self,
        trainee: Trainee,
        replica: Replica,
        ranks: Ranks,
        corpus: Corpus,
        *,
        parts: list[tuple[np.ndarray, bool]],
        anchors_per_sequence: int,
    ) -> None:
        self._trainee, self._replica, self._ranks, self._parts = trainee, replica, ranks, parts
        self._corpus, self._anchors = corpus, anchors_per_sequence

    @torch.no_grad()
    def run(self) -> Validation:
        """Estimate; all processes must call it, and all get the result."""
        with self._replica.whole():
            mine = list(self._mine())
        everyone = self._ranks.gather(mine)
        rounds = max(len(parts) for parts in everyone)
        ordered = [parts[turn] for turn in range(rounds) for parts in everyone if turn < len(parts)]
        cold = [part for part in ordered if part.cold]
        return Validation(
            sampled=_estimate([(part.accept, part.mask, part.sampled_starts) for part in ordered]),
            greedy=_estimate([(part.hit, part.mask, part.greedy_starts) for part in cold]),
        )

    def _mine(self) -> Iterator[_Part]:
        for sequences, cold in self._parts[self._ranks.rank :: self._ranks.world]:
            batch = self._trainee.batch(self._trainee.draw(sequences, (), self._anchors))
            with self._replica.precision():
                sums = self._replica.module(batch)
            accept, hit, mask = sums.accept.cpu(), sums.hit.cpu(), sums.mask.cpu()
            sampled, greedy = (self._starts(sequences, rates, mask) for rates in (accept, hit))
            yield _Part(accept, hit, mask, sampled, greedy, cold)

    def _starts(self, sequences: np.ndarray, rates: Tensor, mask: Tensor) -> Tensor:
        """Weights of blocks [N * A]: how likely a round starts there."""
        weights = torch.zeros(len(sequences), self._anchors, dtype=torch.float64)
        shape = (len(sequences), self._anchors, -1)
        for row, own_rates, own_mask, sequence in zip(
            weights, rates.view(shape), mask.view(shape), sequences, strict=True
        ):
            count = int(own_mask[:, 0].sum())
            positions = anchor_candidates(self._corpus.mask_of(int(sequence)))[: self._anchors]
            row[:count] = round_starts(own_rates[:count], own_mask[:count], positions[len(positions) - count :])
        return weights.flatten()


def validation_parts(corpus: Corpus, held_back: np.ndarray, size: int) -> list[tuple[np.ndarray, bool]]:
    """Micro-batches of at most ``size`` sequences, none with both greedy and sampled ones; and which it is."""
    is_cold = corpus.temperatures[held_back] == 0
    kinds = ((held_back[~is_cold], False), (held_back[is_cold], True))
    return [(group[i : i + size], cold) for group, cold in kinds for i in range(0, len(group), size)]


def _estimate(parts: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Acceptance:
    """Over the blocks of all parts: rates, mask, weights."""
    if not parts:
        return acceptance(torch.zeros(0, 1), torch.zeros(0, 1, dtype=torch.bool))
    rates, mask, weights = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return acceptance(rates, mask, weights)
