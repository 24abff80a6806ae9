"""Reading lists from single options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def integers(option: str, text: str) -> tuple[int, ...]:
    """Read ``1,8,32``.

    Raises:
        InputError: it is no list of integers.
    """
    return _read(option, text, int, "integers with commas between, such as 1,8,32")


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Read ``0,0.7,1``.

    Raises:
        InputError: it is no list of numbers.
    """
    return _read(option, text, float, "numbers with commas between, such as 0,0.7,1")


def _read(option: str, text: str, kind: Callable[[str], _T], expected: str) -> tuple[_T, ...]:
    from dspark.core import InputError

    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} must be {expected}, got {text!r}") from None
