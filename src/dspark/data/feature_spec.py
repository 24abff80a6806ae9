"""Which hidden states of which target a drafter learns from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """What a row of features is.

    Attributes:
        target: name of the target.
        hidden_size: D, width of the target.
        tap_layers: the m tapped layers, in the order in which they are concatenated.
    """

    target: str
    hidden_size: int
    tap_layers: tuple[int, ...]

    @property
    def width(self) -> int:
        """Numbers per row of features, m * D."""
        return len(self.tap_layers) * self.hidden_size
