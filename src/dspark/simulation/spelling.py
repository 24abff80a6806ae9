"""Numbers in texts that users write."""

from __future__ import annotations

from typing import TypeVar

from dspark.core import InputError

_N = TypeVar("_N", int, float)


def number(what: str, text: str, kind: type[_N]) -> _N:
    """Read a number.

    Args:
        what: what messages call it.
        text: as it was written.
        kind: ``int`` or ``float``.

    Raises:
        InputError: it is none.
    """
    try:
        return kind(text)
    except ValueError:
        expected = "an integer" if kind is int else "a number"
        raise InputError(f"{what} must be {expected}, got {text!r}") from None
