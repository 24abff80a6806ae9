"""The same verify length for everyone, whatever the confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark.core import InputError
from dspark.scheduling.reveal import Reveal
from dspark.scheduling.step_view import Ints, StepOutcome, StepView


@dataclass(frozen=True)
class FixedLength:
    """Verify the first ``k`` drafted tokens of each block.

    Attributes:
        k: verify length, >= 0 (0 is plain decoding); None verifies whole blocks.

    Raises:
        InputError: ``k`` is negative or not an integer.
    """

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None and (isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 0):
            raise InputError(f"the verify length of policy 'fixed:K' must be an integer >= 0, got {self.k!r}")

    @property
    def name(self) -> str:
        """``fixed`` or ``fixed:K``."""
        return "fixed" if self.k is None else f"fixed:{self.k}"

    @property
    def needs_confidence(self) -> bool:
        """Never."""
        return False

    def begin_step(self, view: StepView) -> Ints:
        """No more than what will be verified."""
        return view.limits if self.k is None else np.minimum(view.limits, self.k)

    def admit(self, reveal: Reveal) -> None:
        """All that was drafted."""
        reveal.admit_first(reveal.proposed if self.k is None else np.minimum(reveal.proposed, self.k))

    def outcome(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""
