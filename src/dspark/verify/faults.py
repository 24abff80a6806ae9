"""Saying which requests made a step fail."""

from __future__ import annotations

import numpy as np

from dspark.core import DsparkError


class RowsAtFaultError(DsparkError):
    """Some requests of a step cannot be judged; the others could.

    Attributes:
        requests: their places among the judged requests, each once.
    """

    def __init__(self, message: str, requests: np.ndarray) -> None:
        super().__init__(message)
        self.requests: tuple[int, ...] = tuple(np.unique(requests).tolist())
