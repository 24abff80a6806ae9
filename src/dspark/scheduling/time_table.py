"""Measured times over widths: every measured point is kept, and only neighbours are joined by a line."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dspark.core import InputError


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Repeated times of one point of a table.

    Attributes:
        width: rows or requests that were asked for.
        ran: rows or requests that the measured path says it really had.
        depth: context or block length.
        seconds: of each repetition.
    """

    width: int
    ran: int
    depth: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TimeTable:
    """Seconds at measured widths and depths. W widths, D depths.

    Between measured widths time is a straight line from neighbour to neighbour, so that steps and cliffs stay where
    they were measured. Below the smallest width time is that of the smallest. Past the largest it goes on with the mean
    slope over the upper half of the measured widths (never downwards); with one width only, in proportion. Depths are
    joined by lines too, flat below the smallest and going on with the last slope (never downwards) past the largest.

    Attributes:
        widths: [W] rising, >= 1.
        depths: [D] rising, >= 0.
        seconds: [D][W] positive.
        spread: [D][W] relative distance of the quartiles of the repetitions; None where unknown.

    Raises:
        InputError: the axes do not rise, the shapes differ, or a time is no positive number.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    spread: tuple[tuple[float, ...], ...] | None = None
    _grid: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _axis: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _half: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_axis("widths", self.widths, 1)
        _check_axis("depths", self.depths, 0)
        for name, rows in (("seconds", self.seconds), ("spread", self.spread)):
            if rows is not None and (len(rows), {len(row) for row in rows}) != (len(self.depths), {len(self.widths)}):
                raise InputError(f"{name} must be {len(self.depths)} rows of {len(self.widths)} numbers, one per width")
        if not all(math.isfinite(value) and value > 0 for row in self.seconds for value in row):
            raise InputError("seconds must be positive numbers")
        half = int(np.searchsorted(self.widths, self.widths[-1] / 2, side="right")) - 1
        object.__setattr__(self, "_grid", np.array(self.seconds))
        object.__setattr__(self, "_axis", np.array(self.widths, np.float64))
        object.__setattr__(self, "_half", min(max(half, 0), len(self.widths) - 2))

    @classmethod
    def of(cls, measurements: Iterable[Measurement]) -> TimeTable:
        """The medians of a complete grid of measurements.

        Raises:
            InputError: a point is missing or empty, or another width ran than was asked for.
        """
        points = {(m.depth, m.width): m for m in measurements}
        widths, depths = sorted({width for _, width in points}), sorted({depth for depth, _ in points})
        for point in points.values():
            _check_measurement(point)
        missing = [(depth, width) for depth in depths for width in widths if (depth, width) not in points]
        if missing:
            raise InputError(
                f"width {missing[0][1]} was not measured at depth {missing[0][0]}; a table has all of both"
            )
        grid = [[np.array(points[depth, width].seconds) for width in widths] for depth in depths]
        return cls(
            widths=tuple(widths),
            depths=tuple(depths),
            seconds=tuple(tuple(float(np.median(times)) for times in row) for row in grid),
            spread=tuple(tuple(_spread(times) for times in row) for row in grid),
        )

    def nodes(self, depth: float) -> NDArray[np.float64]:
        """[W] seconds at the measured widths, for any depth."""
        rows, last = self._grid, len(self.depths) - 1
        if last == 0 or depth <= self.depths[0]:
            return np.array(rows[0])
        above = min(bisect_left(self.depths, depth), last)
        low, high = self.depths[above - 1], self.depths[above]
        share = (depth - low) / (high - low)
        rise = rows[above] - rows[above - 1]
        if share <= 1.0:
            return np.array(rows[above - 1] + share * rise)
        return np.array(rows[above] + (share - 1.0) * np.maximum(rise, 0.0))

    def at(self, widths: ArrayLike, depth: float = 0.0) -> NDArray[np.float64]:
        """Seconds at any widths and one depth."""
        return self.between(self.nodes(depth), widths)

    def between(self, nodes: NDArray[np.float64], widths: ArrayLike) -> NDArray[np.float64]:
        """The line through given values at the measured widths, continued as stated above."""
        asked = np.asarray(widths, np.float64)
        found: NDArray[np.float64] = np.interp(asked, self._axis, nodes)
        if asked.max(initial=0.0) > self._axis[-1]:
            found = found + np.maximum(asked - self._axis[-1], 0.0) * self._slope(nodes)
        return found

    def _slope(self, nodes: NDArray[np.float64]) -> float:
        """Seconds per row past the largest width."""
        widths = self.widths
        if len(widths) == 1:
            return float(nodes[0]) / widths[0]
        return max(float(nodes[-1] - nodes[self._half]) / (widths[-1] - widths[self._half]), 0.0)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"widths": self.widths, "depths": self.depths, "seconds": self.seconds, "spread": self.spread}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> TimeTable:
        """Back from JSON.

        Raises:
            InputError: a field is missing or of another form.
        """
        try:
            spread = raw["spread"]
            return cls(
                widths=tuple(int(width) for width in raw["widths"]),
                depths=tuple(int(depth) for depth in raw["depths"]),
                seconds=_rows(raw["seconds"]),
                spread=None if spread is None else _rows(spread),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"a time table has widths, depths, seconds and spread; this one is damaged: {error}"
            ) from None


def _rows(raw: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(value) for value in row) for row in raw)


def _check_axis(name: str, axis: tuple[int, ...], least: int) -> None:
    if not axis or axis[0] < least or any(low >= high for low, high in pairwise(axis)):
        raise InputError(f"{name} must be rising integers from {least}, at least one; got {list(axis)}")


def _check_measurement(point: Measurement) -> None:
    if not point.seconds:
        raise InputError(f"width {point.width} has no measured time")
    if point.ran != point.width:
        raise InputError(
            f"the profile asked for width {point.width}, but {point.ran} ran; a table of another width is worthless"
        )


def _spread(times: NDArray[np.float64]) -> float:
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
    return float((high - low) / middle)
