"""Simulated acceptance on sequences that are held back from training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dspark.data.corpus import Corpus
from dspark.training.metrics import Acceptance, acceptance
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
    """Blocks of one micro-batch, on the CPU."""

    accept: Tensor
    hit: Tensor
    mask: Tensor
    cold: bool


class Validator:
    """Looks at the same anchors of the same sequences every time; processes take turns."""

    def __init__(
        self,
        trainee: Trainee,
        replica: Replica,
        ranks: Ranks,
        *,
        parts: list[tuple[np.ndarray, bool]],
        seed: int,
        anchors_per_sequence: int,
    ) -> None:
        self._trainee, self._replica, self._ranks, self._parts = trainee, replica, ranks, parts
        self._key, self._anchors = (seed, 3), anchors_per_sequence

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
            sampled=acceptance(torch.cat([p.accept for p in ordered]), torch.cat([p.mask for p in ordered])),
            greedy=acceptance(_joined([p.hit for p in cold]), _joined([p.mask for p in cold]).bool()),
        )

    def _mine(self) -> Iterator[_Part]:
        for sequences, cold in self._parts[self._ranks.rank :: self._ranks.world]:
            batch = self._trainee.batch(self._trainee.draw(sequences, self._key, self._anchors))
            with self._replica.precision():
                sums = self._replica.module(batch)
            yield _Part(sums.accept.cpu(), sums.hit.cpu(), sums.mask.cpu(), cold)


def validation_parts(corpus: Corpus, held_back: np.ndarray, size: int) -> list[tuple[np.ndarray, bool]]:
    """Micro-batches of at most ``size`` sequences, none with both greedy and sampled ones; and which it is."""
    is_cold = corpus.temperatures[held_back] == 0
    kinds = ((held_back[~is_cold], False), (held_back[is_cold], True))
    return [(group[i : i + size], cold) for group, cold in kinds for i in range(0, len(group), size)]


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.zeros(0, 1)
