"""Sampling options of many rows, as arrays that exist only where some row uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark.core import SamplingParams

TEMPERATURES = (1e-6, 1e30)
"""Temperatures outside act like these: all mass on the most likely tokens, or equal mass on all."""


@dataclass(frozen=True, kw_only=True)
class RowSampling:
    """How each of N rows is sampled; rows may be requests or logits rows, :meth:`take` goes from one to the other.

    Attributes:
        greedy: [N] bool, rows of greedy requests; their other entries are neutral.
        temperature: [N] float64 > 0, None when all are 1.
        top_k: [N] int64, 0 keeps all; None when no row uses it.
        top_p: [N] float64 in (0, 1]; None when no row uses it.
        min_p: [N] float64 in [0, 1]; None when no row uses it.
    """

    greedy: np.ndarray
    temperature: np.ndarray | None = None
    top_k: np.ndarray | None = None
    top_p: np.ndarray | None = None
    min_p: np.ndarray | None = None

    @classmethod
    def of(cls, params: Sequence[SamplingParams]) -> RowSampling:
        """Collect the options of requests, one row each."""
        greedy = np.array([p.greedy for p in params], bool)
        if greedy.all():
            return cls(greedy=greedy)
        return cls(
            greedy=greedy,
            temperature=_column(greedy, [_bounded(p.temperature) for p in params], 1.0, np.float64),
            top_k=_column(greedy, [p.top_k for p in params], 0, np.int64),
            top_p=_column(greedy, [p.top_p for p in params], 1.0, np.float64),
            min_p=_column(greedy, [p.min_p for p in params], 0.0, np.float64),
        )

    def __len__(self) -> int:
        return len(self.greedy)

    def filtered(self) -> np.ndarray:
        """[N] bool, rows that drop tokens."""
        active = np.zeros(len(self), bool)
        if self.top_k is not None:
            active |= self.top_k > 0
        if self.top_p is not None:
            active |= self.top_p < 1.0
        if self.min_p is not None:
            active |= self.min_p > 0.0
        return active

    def take(self, index: np.ndarray) -> RowSampling:
        """Rows ``index`` [n], repeats allowed."""
        pick = lambda column: None if column is None else column[index]  # noqa: E731 - one rule for five columns
        return RowSampling(
            greedy=self.greedy[index],
            temperature=pick(self.temperature),
            top_k=pick(self.top_k),
            top_p=pick(self.top_p),
            min_p=pick(self.min_p),
        )


def _bounded(temperature: float) -> float:
    return min(max(temperature, TEMPERATURES[0]), TEMPERATURES[1])


def _column(greedy: np.ndarray, values: list, neutral: float, dtype: type) -> np.ndarray | None:
    """One option of all rows, neutral on greedy rows; None when it does nothing anywhere."""
    column: np.ndarray = np.where(greedy, neutral, np.array(values, dtype)).astype(dtype)
    return column if np.any(column != neutral) else None
