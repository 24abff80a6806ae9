"""Gradients of one global batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dspark.core import InputError
from dspark.drafters.losses import LossSums
from dspark.training.ranks import Ranks
from dspark.training.replica import Replica
from dspark.training.trainee import Trainee


@dataclass(kw_only=True)
class StepResult:
    """What a step is remembered by.

    Attributes:
        loss: of the global batch, weighted mean over its slots.
        terms: the same of single terms, without their factors.
        tau: simulated acceptance (sampled) on what was learnt from.
        gradient_norm: before clipping.
    """

    loss: float
    terms: dict[str, float]
    tau: float
    gradient_norm: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As one flat log entry."""
        return {"loss": self.loss, **self.terms, "gradient_norm": self.gradient_norm, "train_tau": self.tau}


def take_step(
    trainee: Trainee, replica: Replica, ranks: Ranks, draws: Sequence[Any], weight: float, device: torch.device
) -> StepResult:
    """Leave in the parameters the gradient of the weighted mean loss of all micro-batches of all processes.

    Args:
        trainee, replica, ranks: of this process.
        draws: its micro-batches.
        weight: sum of the slots' weights over all micro-batches of all processes.
        device: where small numbers are added up.

    Raises:
        InputError: the loss is no finite number.
    """
    totals: dict[str, float] = {}
    for place, draw in enumerate(draws):
        sums = replica.learn(trainee.batch(draw), 1 / weight, last=place == len(draws) - 1)
        for name, value in _numbers(sums).items():
            totals[name] = totals.get(name, 0.0) + value
    names = sorted(totals)
    summed = dict(zip(names, ranks.sums([totals[name] for name in names], device), strict=True))
    committed, blocks = summed.pop("_committed"), summed.pop("_blocks")
    means = {name: value / weight for name, value in summed.items()}
    loss = means.pop("loss")
    if not torch.isfinite(torch.tensor(loss)):
        raise InputError(f"the loss is {loss}; lower optim.lr or raise optim.warmup, and go on from the last state")
    return StepResult(loss=loss, terms=means, tau=1 + committed / max(1.0, blocks))


def _numbers(sums: LossSums) -> dict[str, float]:
    """Sums as plain numbers; accepted tokens and counted blocks among them."""
    committed = torch.cumprod(sums.accept * sums.mask, dim=1).sum()
    values = {"loss": sums.loss.detach(), **sums.terms, "_committed": committed, "_blocks": sums.mask[:, 0].sum()}
    return {name: float(value) for name, value in values.items()}
