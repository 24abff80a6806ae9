"""Reading lists from single options."""

from __future__ import annotations


def integers(option: str, text: str) -> tuple[int, ...]:
    """Read ``1,8,32``.

    Raises:
        InputError: it is no list of integers.
    """
    from dspark.core import InputError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} must be integers with commas between, such as 1,8,32, got {text!r}") from None


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Read ``0,0.7,1``.

    Raises:
        InputError: it is no list of numbers.
    """
    from dspark.core import InputError

    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} must be numbers with commas between, such as 0,0.7,1, got {text!r}") from None
