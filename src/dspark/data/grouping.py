"""Cutting a row of sequences into consecutive groups of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def overflows(held: int, more: int, limit: int) -> bool:
    """Whether a group of ``held`` tokens cannot take a sequence of ``more``; an empty group takes any."""
    return held > 0 and held + more > limit


def consecutive_groups(lengths: Iterable[int], limit: int) -> Iterator[tuple[int, int]]:
    """Groups ``start .. stop - 1`` of at most ``limit`` tokens, as large as they can be; a longer sequence goes alone.

    Args:
        lengths: tokens of each sequence, each >= 1.
        limit: tokens per group, >= 1.
    """
    start, stop, held = 0, 0, 0
    for stop, length in enumerate(lengths):
        if overflows(held, int(length), limit):
            yield start, stop
            start, held = stop, 0
        held += int(length)
    if held:
        yield start, stop + 1
