"""The processes of a run: started by torchrun, or the only one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Which process this is, and what it asks of the others.

    Attributes:
        rank, world: number of this process, and how many there are.
    """

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def sums(self, values: Sequence[float], device: torch.device) -> list[float]:
        """Sums over all processes, in double precision."""
        if self.world == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        summed: list[float] = total.tolist()
        return summed

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in order of their numbers."""
        if self.world == 1:
            return [value]
        gathered: list[Any] = [None] * self.world
        dist.all_gather_object(gathered, value)
        return gathered

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()


def torchrun_device() -> str:
    """The device of this process: with several on a machine that has GPUs, one GPU each; else ``auto``."""
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if local is not None and torch.cuda.is_available() else "auto"


def join(device: torch.device) -> Ranks:
    """Meet the other processes, if torchrun started this one; ``leave`` in the end."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        return Ranks()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Ranks(rank=dist.get_rank(), world=dist.get_world_size())


def leave(ranks: Ranks) -> None:
    """Part from the other processes."""
    if ranks.world > 1:
        dist.destroy_process_group()
