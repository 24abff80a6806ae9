"""Correcting confidences with one temperature per position of the block."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dspark.core import InputError


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Turns a drafter's confidences into calibrated ones: logit(c_k) / t_k at every position k of the block.

    Rising in c, so that the order of two blocks at one position stays; entry k reads nothing but entry k, so that a
    policy that was non-anticipating stays it. The survival of a prefix is the running product of the result.

    Attributes:
        temperatures: [G] positive; above 1 makes less sure, below 1 surer.

    Raises:
        InputError: there are none, or one is no positive number.
    """

    temperatures: tuple[float, ...]
    _scale: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        good = [math.isfinite(t) and t > 0 for t in self.temperatures]
        if not self.temperatures or not all(good):
            raise InputError(f"temperatures must be positive numbers, one per position, got {self.temperatures}")
        object.__setattr__(self, "_scale", 1 / torch.tensor(self.temperatures, dtype=torch.float32))

    @property
    def block_size(self) -> int:
        """G."""
        return len(self.temperatures)

    def on(self, device: torch.device) -> Calibration:
        """The same with its numbers on a device, so that ``apply`` copies nothing there."""
        moved = replace(self)
        object.__setattr__(moved, "_scale", self._scale.to(device))
        return moved

    def apply(self, confidence: Tensor) -> Tensor:
        """Calibrated confidences.

        Args:
            confidence: [R, g] float32 on this object's device, g <= G (a short block has the first positions).

        Returns:
            [R, g] float32; 0 and 1 stay what they are, and so does what is not a number.
        """
        return torch.sigmoid(torch.logit(confidence) * self._scale[: confidence.shape[-1]])

    def apply_array(self, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for recorded confidences [N, g], in double precision."""
        width = confidence.shape[1]
        return scale_confidence(confidence, np.array(self.temperatures[:width], np.float64))


def scale_confidence(confidence: NDArray[np.float64], temperature: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Sigmoid of (logit of a confidence / temperature), for any shapes that go together."""
    with np.errstate(divide="ignore", over="ignore"):
        odds = np.log(confidence) - np.log1p(-confidence)
        scaled: NDArray[np.float64] = 1 / (1 + np.exp(-odds / temperature))
    return scaled
