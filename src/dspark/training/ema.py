"""Exponential moving average of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dspark.training.replica import cut_like, local


class MovingAverage:
    """A second set of weights that follows the trained ones slowly; over short runs less slowly."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._decay = decay
        self._pairs = {name: (parameter, parameter.detach().clone()) for name, parameter in module.named_parameters()}

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Move towards the weights after the 0-based step."""
        share = 1 - min(self._decay, (1 + step) / (10 + step))
        for parameter, average in self._pairs.values():
            local(average).lerp_(local(parameter.detach()), share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While the body runs the module has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for parameter, average in self._pairs.values():
            kept = local(parameter.detach()).clone()
            local(parameter.detach()).copy_(local(average))
            local(average).copy_(kept)

    def weights(self) -> Mapping[str, Tensor]:
        """The averages by name."""
        return {name: average for name, (_, average) in self._pairs.items()}

    @torch.no_grad()
    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Take over whole CPU tensors."""
        for name, (parameter, average) in self._pairs.items():
            local(average).copy_(local(cut_like(weights[name], parameter)))
