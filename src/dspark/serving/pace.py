"""How fast requests end, to tell those that are refused when to come back."""

from __future__ import annotations

import math
import time

_MEMORY = 0.9
_LONGEST = 60


class Pace:
    """A moving mean of the seconds between two requests that end."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._interval = 1.0

    def tick(self) -> None:
        """A request has ended."""
        now = time.monotonic()
        if self._last is not None:
            self._interval = _MEMORY * self._interval + (1 - _MEMORY) * (now - self._last)
        self._last = now

    def seconds_for(self, waiting: int) -> int:
        """Seconds until a tenth of those that wait have got their turn, within [1, 60]."""
        return max(1, min(_LONGEST, math.ceil(self._interval * (1 + waiting // 10))))
