"""What the processor of this machine is called."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name() -> str:
    """Its name, or at least its kind where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
