"""A progress bar for runs that are long enough to need one."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_PATIENCE = 2.0
"""Seconds before the bar appears."""


class LateProgress:
    """Shows on stderr, if that is a terminal, once the run has taken two seconds.

    Args:
        description: what is counted.
        total: how many there are.
        enabled: False shows nothing.
    """

    def __init__(self, description: str, total: int, *, enabled: bool) -> None:
        self._description, self._total, self._done = description, total, 0
        self._enabled = enabled and sys.stderr.isatty()
        self._start = time.monotonic()
        self._bar: Any = None  # rich is imported when it is needed

    def __enter__(self) -> LateProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, note: str) -> None:
        """Show how many are done, and a short note beside the bar."""
        self._done = done
        if self._enabled and time.monotonic() - self._start >= _PATIENCE:
            self._show(note)

    def _show(self, note: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True)
            self._task = bar.add_task(self._description, total=self._total, note=note)
            bar.start()
            self._bar = bar
        self._bar.update(self._task, completed=self._done, note=note)
