"""When requests come: at times of their own, or when users have got their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dspark.core import InputError
from dspark.scheduling.step_view import Floats


@dataclass(frozen=True, kw_only=True)
class ClosedLoop:
    """Users who ask again as soon as they have their answer, until there is nothing left to ask.

    Attributes:
        users: how many, at least 1.

    Raises:
        InputError: there are none.
    """

    users: int

    def __post_init__(self) -> None:
        if self.users < 1:
            raise InputError(f"a closed loop needs at least one user, got {self.users}")


@dataclass(frozen=True, kw_only=True)
class OpenLoop:
    """Requests that come whatever becomes of those before.

    Attributes:
        times: [M] seconds, never falling, from 0.

    Raises:
        InputError: the times fall, or are no numbers from 0.
    """

    times: Floats

    def __post_init__(self) -> None:
        if not np.isfinite(self.times).all() or self.times.min(initial=0.0) < 0 or (np.diff(self.times) < 0).any():
            raise InputError("arrival times must be numbers from 0 that never fall")

    @classmethod
    def of(cls, times: Sequence[float]) -> OpenLoop:
        """From any sequence."""
        return cls(times=np.asarray(times, np.float64))


Arrivals = ClosedLoop | OpenLoop
