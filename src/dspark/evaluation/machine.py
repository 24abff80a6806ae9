"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import torch

from dspark.core.processor import processor_name
from dspark.target.threads import usable_cores


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What decides how fast things run.

    Attributes:
        processor: its name.
        cores: physical cores this process may use.
        threads: threads torch computes with.
        bound: whether these threads are bound to cores.
        instructions: vector instructions that matter to matrix products.
        memory: installed bytes; None where the system does not tell.
        accelerators: names of the CUDA devices.
        system: operating system and architecture.
        python, torch: versions.
    """

    processor: str
    cores: int
    threads: int
    bound: bool
    instructions: tuple[str, ...]
    memory: int | None
    accelerators: tuple[str, ...]
    system: str
    python: str
    torch: str


def this_machine() -> Machine:
    """Look at the machine."""
    return Machine(
        processor=processor_name(),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        bound="OMP_PROC_BIND" in os.environ,
        instructions=_instructions(),
        memory=_memory(),
        accelerators=tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
    )


def _instructions() -> tuple[str, ...]:
    """Names of the present instruction sets that torch knows about."""
    capabilities = torch.cpu.get_capabilities()
    return tuple(sorted(str(name) for name, value in capabilities.items() if value is True))


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
