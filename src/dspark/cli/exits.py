"""How a command ends when something goes wrong: one line on stderr, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import typer

_T = TypeVar("_T")

ERROR, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

_RUNTIME_ERRORS = {
    "PytorchStreamWriter": "a file could not be written (is the disk full?)",
    "can't allocate memory": "there is not enough memory; a smaller model, fewer answers at a time, or a shorter text",
    "out of memory": "there is not enough device memory; a smaller model, fewer answers at a time, or a shorter text",
}
"""What torch says in words of its own, and what we say."""


def guarded(action: Callable[[], _T]) -> _T:
    """Run an action and whatever output it left in buffers.

    Raises:
        typer.Exit: the action failed in a way that users can understand; the line about it is on stderr.
    """
    try:
        result = action()
        sys.stdout.flush()
        return result
    except KeyboardInterrupt as interrupt:
        raise _end(str(interrupt) or "interrupted", INTERRUPTED) from None
    except BrokenPipeError:
        _discard_stdout()
        raise typer.Exit(BROKEN_PIPE) from None
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        if isinstance(error, OSError):
            _discard_stdout()
        raise _end(line, getattr(error, "exit_code", ERROR)) from None


def explain(error: Exception) -> str | None:
    """One line about an error that users can do something about; None for one that is a fault of ours."""
    if _is_usage_error(error):
        return _about_usage(error)
    if _is_ours(error):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return place + (error.strerror or str(error) or type(error).__name__)
    if type(error).__name__ == "SafetensorError":
        return f"a file of weights is damaged or cannot be written: {error}"
    if isinstance(error, (RuntimeError, MemoryError)):
        return next((said for sign, said in _RUNTIME_ERRORS.items() if sign in str(error)), None)
    return None


def _end(line: str, code: int) -> typer.Exit:
    """Say it and leave."""
    with suppress(OSError):
        print(f"dspark: {' '.join(line.split())}", file=sys.stderr, flush=True)
    return typer.Exit(code)


def _is_ours(error: Exception) -> bool:
    """Whether it is a DsparkError; if it is, the module that defines it is loaded already."""
    errors: Any = sys.modules.get("dspark.core.errors")
    return errors is not None and isinstance(error, errors.DsparkError)


def _is_usage_error(error: Exception) -> bool:
    """Whether the command line could not be read (and no help text is to be shown instead)."""
    return hasattr(error, "format_message") and "NoArgs" not in type(error).__name__


def _about_usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return f"{error.format_message()}{hint}"


def _discard_stdout() -> None:
    """Let what is still in the buffer go nowhere, so that the interpreter does not stumble over it at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
