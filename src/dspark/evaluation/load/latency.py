"""How long users wait, and how long they would."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark.core import InputError

_SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class LatencyTarget:
    """What a user would not wait longer for.

    Attributes:
        first_token: seconds to the first token.
        token: mean seconds for each further one.

    Raises:
        InputError: a time is not above 0.
    """

    first_token: float = 2.0
    token: float = 0.1

    def __post_init__(self) -> None:
        if not (self.first_token > 0 and self.token > 0):
            raise InputError(f"latency targets must be above 0, got {self.first_token} and {self.token}")


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    """Seconds that 50, 95 and 99 % stay below."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray | None = None) -> Percentiles | None:
        """Of values [N] that count as often as their weights [N] say; None for no values."""
        if not len(values):
            return None
        p50, p95, p99 = np.quantile(values, _SHARES, weights=weights, method="inverted_cdf").tolist()
        return cls(p50=p50, p95=p95, p99=p99)
