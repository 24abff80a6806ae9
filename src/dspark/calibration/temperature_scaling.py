"""Correcting confidences with one temperature, and if need be one offset, per position of the block."""

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
    """Turns a drafter's confidences into calibrated ones: logit(c_k) / t_k + b_k at every position k of the block.

    Rising in c, so that the order of two blocks at one position stays; entry k reads nothing but entry k, so that a
    policy that was non-anticipating stays it. The survival of a prefix is the running product of the result.

    Attributes:
        temperatures: [G] positive; above 1 makes less sure, below 1 surer. Alone they never move a confidence across
            one half.
        offsets: [G] added to the scaled logits; None for none, which is the method's own form.

    Raises:
        InputError: there are no temperatures, one is no positive number, or the offsets are no [G] numbers.
    """

    temperatures: tuple[float, ...]
    offsets: tuple[float, ...] | None = None
    _scale: Tensor = field(init=False, repr=False, compare=False)
    _shift: Tensor | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        good = [math.isfinite(t) and t > 0 for t in self.temperatures]
        if not self.temperatures or not all(good):
            raise InputError(f"temperatures must be positive numbers, one per position, got {self.temperatures}")
        shift = self.offsets
        if shift is not None and (len(shift) != len(self.temperatures) or not all(map(math.isfinite, shift))):
            raise InputError(f"offsets must be numbers, one per temperature ({len(self.temperatures)}), got {shift}")
        object.__setattr__(self, "_scale", 1 / torch.tensor(self.temperatures, dtype=torch.float32))
        object.__setattr__(self, "_shift", None if shift is None else torch.tensor(shift, dtype=torch.float32))

    @property
    def block_size(self) -> int:
        """G."""
        return len(self.temperatures)

    def on(self, device: torch.device) -> Calibration:
        """The same with its numbers on a device, so that ``apply`` copies nothing there."""
        moved = replace(self)
        object.__setattr__(moved, "_scale", self._scale.to(device))
        object.__setattr__(moved, "_shift", None if self._shift is None else self._shift.to(device))
        return moved

    def apply(self, confidence: Tensor) -> Tensor:
        """Calibrated confidences.

        Args:
            confidence: [R, g] float32 on this object's device, g <= G (a short block has the first positions).

        Returns:
            [R, g] float32; 0 and 1 stay what they are, and so does what is not a number.
        """
        width = confidence.shape[-1]
        logits = torch.logit(confidence) * self._scale[:width]
        return torch.sigmoid(logits if self._shift is None else logits + self._shift[:width])

    def apply_array(self, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for recorded confidences [N, g], in double precision."""
        width = confidence.shape[1]
        offsets = 0.0 if self.offsets is None else np.array(self.offsets[:width])
        return scale_confidence(confidence, np.array(self.temperatures[:width]), offsets)


def scale_confidence(
    confidence: NDArray[np.float64],
    temperature: float | NDArray[np.float64],
    offset: float | NDArray[np.float64] = 0.0,
) -> NDArray[np.float64]:
    """Sigmoid of (logit of a confidence / temperature + offset), for any shapes that go together."""
    with np.errstate(divide="ignore", over="ignore"):
        odds = np.log(confidence) - np.log1p(-confidence)
        scaled: NDArray[np.float64] = 1 / (1 + np.exp(-odds / temperature - offset))
    return scaled
