"""How one process computes gradients: alone, as one of equals (DDP), or holding a part of the weights (FSDP2).

Every way gives the gradient of the sum over all processes and micro-batches of ``loss * factor``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from dspark.drafters.losses import LossSums
from dspark.training.config import Parallel
from dspark.training.ranks import Ranks


class Replica:
    """The module of a run with one process; its subclasses share the work."""

    def __init__(self, module: nn.Module, *, device: torch.device, bf16: bool) -> None:
        self.module, self._device, self._bf16 = module, device, bf16

    def precision(self) -> torch.autocast:
        """Compute in bfloat16, if the run does."""
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16)

    def learn(self, batch: Any, factor: float, *, last: bool) -> LossSums:
        """Add the gradients of ``loss * factor``; after the last micro-batch of a step they are those of all."""
        with self._exchange(last):
            with self.precision():
                sums = self._forward(batch)
            with record_function("backward"):
                (sums.loss * factor).backward()
        return sums

    @contextmanager
    def whole(self) -> Iterator[None]:
        """While the body runs, ``module`` can be called by each process as often as it likes."""
        yield

    def _forward(self, batch: Any) -> LossSums:
        sums: LossSums = self.module(batch)
        return sums

    def _exchange(self, last: bool) -> AbstractContextManager[None]:
        """Whether the backward inside exchanges gradients."""
        return nullcontext()


class DDPReplica(Replica):
    """Every process holds everything; gradients are averaged by DDP."""

    def __init__(self, module: nn.Module, *, device: torch.device, bf16: bool, world: int) -> None:
        super().__init__(module, device=device, bf16=bf16)
        self._wrapped, self._world = DistributedDataParallel(module), world

    def learn(self, batch: Any, factor: float, *, last: bool) -> LossSums:
        """As Replica.learn; the factor undoes the average."""
        return super().learn(batch, factor * self._world, last=last)

    def _forward(self, batch: Any) -> LossSums:
        sums: LossSums = self._wrapped(batch)
        return sums

    def _exchange(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self._wrapped.no_sync()


class FSDPReplica(Replica):
    """Weights, gradients and moments are cut over the processes; whole weights exist during a step only."""

    def __init__(self, module: nn.Module, *, device: torch.device, bf16: bool, world: int) -> None:
        super().__init__(module, device=device, bf16=bf16)
        self._world = world
        self._wrapped: Any = fully_shard(_Flat(module), mesh=init_device_mesh(device.type, (world,)))

    def learn(self, batch: Any, factor: float, *, last: bool) -> LossSums:
        """As Replica.learn; the factor undoes the average."""
        self._wrapped.set_requires_gradient_sync(last)
        return super().learn(batch, factor * self._world, last=last)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Gather the weights for a while."""
        self._wrapped.unshard()
        try:
            yield
        finally:
            self._wrapped.reshard()

    def _forward(self, batch: Any) -> LossSums:
        return LossSums(**self._wrapped(batch))


class _Flat(nn.Module):
    """A module that returns its sums as a dictionary: FSDP2 looks for tensors in containers it knows."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch: Any) -> dict[str, Any]:
        """Run it."""
        return dict(vars(self.inner(batch)))


def make_replica(module: nn.Module, ranks: Ranks, parallel: Parallel, *, device: torch.device, bf16: bool) -> Replica:
    """The replica of this process."""
    if ranks.world == 1:
        return Replica(module, device=device, bf16=bf16)
    kind = DDPReplica if parallel is Parallel.DDP else FSDPReplica
    return kind(module, device=device, bf16=bf16, world=ranks.world)


def gathered(value: Tensor) -> Tensor:
    """The whole of a tensor that may be cut over processes, on the CPU; all processes must call it."""
    whole = value.full_tensor() if isinstance(value, DTensor) else value
    return whole.detach().cpu()


def cut_like(value: Tensor, parameter: Tensor) -> Tensor:
    """A whole CPU tensor placed and cut like a parameter of its shape; tensors of other shapes (counters) stay."""
    if value.shape != parameter.shape:
        return value
    value = value.to(parameter.device)
    if not isinstance(parameter, DTensor):
        return value
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def local(value: Tensor) -> Tensor:
    """This process's part of a tensor."""
    return value.to_local() if isinstance(value, DTensor) else value
