"""What goes to the screen: consoles, a spinner while something loads, progress bars, notes."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PATIENCE = 2.0
"""Seconds before a bar appears."""


def print_whatever_comes() -> None:
    """Where an output's encoding lacks a character, a question mark is printed instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def out() -> Console:
    """Console on stdout; texts are printed as they are."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def err() -> Console:
    """Console on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_markdown(text: str) -> None:
    """A report on stdout: laid out on a terminal, as it is elsewhere."""
    console = out()
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(text))
    else:
        print(text, end="")


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Turn a spinner on the terminal while the body runs; yields a function that says something else beside it."""
    console = err()
    if not console.is_terminal:
        yield say_nothing
        return
    with console.status(what) as status:
        yield status.update


def say_nothing(text: str) -> None:
    """Where nobody looks."""


def note(lines: Iterable[str]) -> None:
    """Dim remarks, for people only."""
    console = err()
    if console.is_terminal:
        for line in lines:
            console.print(line, style="dim")


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """A bar with an estimate of the time left, on stderr if that is a terminal, once two seconds have passed.

    Args:
        what: what is counted.
        total: how many there are; None where that is not known.

    Yields:
        A function to call with how many are done and a short note.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    console, started = err(), time.monotonic()
    bar = Progress(
        *columns,
        console=console,
        transient=True,
        speed_estimate_period=math.inf,
        redirect_stdout=sys.stdout.isatty(),  # what goes to a file stays out of the bar's way
    )
    task = bar.add_task(what, total=total, note="")

    def update(done: int, remark: str) -> None:
        bar.update(task, completed=done, note=remark)
        if console.is_terminal and not bar.live.is_started and time.monotonic() - started >= _PATIENCE:
            bar.start()

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()
