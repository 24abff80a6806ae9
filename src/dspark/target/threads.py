"""Thread settings that must be in the environment before torch starts. This file imports nothing heavy."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup/cpu.max")


def prepare_threads(environ: MutableMapping[str, str] | None = None) -> int:
    """Set the number of compute threads and bind them to cores, unless the user has set them.

    Call it before anything imports torch: OpenMP reads these variables once. One thread per physical core this process
    may use (hyper-threads share the units that matrix products need), no more than a container's quota allows. Threads
    are bound only when they fill every core of the machine, as binding several smaller processes would stack them.

    Args:
        environ: the environment to change, ``os.environ`` when None.

    Returns:
        The number of threads that will be used.
    """
    env = os.environ if environ is None else environ
    threads = _number(env.get("OMP_NUM_THREADS")) or usable_cores()
    env.setdefault("OMP_NUM_THREADS", str(threads))
    chosen = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"} & env.keys()
    if sys.platform == "linux" and not chosen and threads >= physical_cores(range(os.cpu_count() or 1)):
        env["OMP_PROC_BIND"] = "close"
        env["OMP_PLACES"] = "cores"
    return threads


def usable_cores() -> int:
    """Physical cores this process may use: its affinity mask, cut by a container's quota; at least 1."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return max(1, min(physical_cores(cpus), _quota()))


def physical_cores(cpus: range | set[int]) -> int:
    """How many physical cores these logical CPUs lie on; each counts alone where the system does not tell."""
    return len({_siblings(cpu) for cpu in cpus})


def _siblings(cpu: int) -> str:
    try:
        return (_SYSTEM / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int:
    """Whole cores of the control group's CPU quota, a large number without one."""
    try:
        quota, period = _CGROUP.read_text().split()
        return max(1, math.floor(int(quota) / int(period)))
    except (OSError, ValueError):
        return sys.maxsize


def _number(text: str | None) -> int | None:
    """The first number of an OpenMP list such as ``4`` or ``4,2``, None when it is not a positive number."""
    head = (text or "").split(",")[0].strip()
    return int(head) if head.isdigit() and int(head) > 0 else None
