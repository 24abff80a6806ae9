"""The time that a load test goes by."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Says what time it is, in seconds from anywhere."""

    def now(self) -> float:
        """The time."""
        ...

    def skip_to(self, moment: float) -> None:
        """Let the time until a moment pass with nobody to serve; a moment that has passed is no error."""
        ...


class SkippingClock:
    """The machine's time, in which idle time is not waited for but skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        """Seconds of work and of idle time."""
        return time.perf_counter() + self._skipped

    def skip_to(self, moment: float) -> None:
        """Jump."""
        self._skipped += max(moment - self.now(), 0.0)
