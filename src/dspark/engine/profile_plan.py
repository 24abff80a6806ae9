"""What is measured to know the costs of steps: widths, contexts, blocks, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dspark.core import InputError

_FINE = 16
"""Widths up to here are all measured; from there on, four between a power of two and the next."""

_HALVING = 8.0
"""Times the width of a whole block until a request's share of a step has fallen to the root of a whole block."""


@dataclass(frozen=True, kw_only=True)
class ProfilePlan:
    """What to measure.

    Attributes:
        max_rows: widest step.
        max_requests: most requests that draft.
        contexts: keys before the rows of a step; longer ones than the model holds are cut.
        repeats: times that each point is measured.
        seconds: time that all of it may take, roughly: repeats, and in the end the widest steps, are left out on slow
            machines. Never less than the narrow steps take.

    Raises:
        InputError: a number is out of range.
    """

    max_rows: int = 512
    max_requests: int = 64
    contexts: tuple[int, ...] = (64, 512)
    repeats: int = 5
    seconds: float = 12.0

    def __post_init__(self) -> None:
        if min(self.max_rows, self.max_requests, self.repeats, *self.contexts) < 1 or not self.contexts:
            raise InputError("a profile needs at least one row, request, context and repeat")

    def row_widths(self) -> list[int]:
        """Step batches to measure: every one up to 16, then four to every doubling."""
        return _widths(self.max_rows, _FINE, 4)

    def request_widths(self) -> list[int]:
        """Numbers of drafting requests: every one up to 4, then two to every doubling."""
        return _widths(self.max_requests, 4, 2)


def _widths(most: int, fine: int, steps: int) -> list[int]:
    found = list(range(1, min(most, fine) + 1))
    while found[-1] < most:
        power = 1 << (found[-1].bit_length() - 1)
        found.append(min(found[-1] + max(power // steps, 1), most))
    return found


def block_lengths(block_size: int) -> list[int]:
    """Blocks whose drafting is measured: a third, two thirds and all of the drafter's."""
    return sorted({math.ceil(block_size * part / 3) for part in (1, 2, 3)}) if block_size else []


def requests_of(rows: int, block_size: int, most: int) -> int:
    """How many requests share a measured step: few with whole blocks in a narrow one, more and shorter in a wide one.

    As in serving, where budgets fall with the load. Time depends on it a little, as each request's keys are read once;
    what really runs corrects the rest.

    Args:
        rows: of the step.
        block_size: drafts of a whole block.
        most: requests in progress.
    """
    whole = 1 + block_size
    level = min(max(math.log(rows / whole) / math.log(_HALVING), 0.0), 1.0)
    return min(max(math.ceil(rows / whole ** (1 - level / 2)), 1), most)
