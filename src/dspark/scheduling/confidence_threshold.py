"""Cut each block where the drafter stops believing in it."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.core import InputError
from dspark.scheduling.reveal import Reveal
from dspark.scheduling.step_view import Ints, StepOutcome, StepView


@dataclass(frozen=True)
class ConfidenceThreshold:
    """Verify the slots before the first one whose confidence is below ``t``, possibly none.

    Only entries 0 .. j decide about slot j, so the policy is non-anticipating. A confidence that is not a number counts
    as below.

    Attributes:
        t: threshold on the conditional acceptance probability of a slot, in [0, 1].

    Raises:
        InputError: ``t`` is not a number in [0, 1].
    """

    t: float

    def __post_init__(self) -> None:
        number = isinstance(self.t, (int, float)) and not isinstance(self.t, bool)
        if not number or not 0.0 <= self.t <= 1.0:
            raise InputError(f"the threshold of policy 'threshold:T' must be a number in [0, 1], got {self.t!r}")

    @property
    def name(self) -> str:
        """``threshold:T``."""
        return f"threshold:{self.t!r}"

    @property
    def needs_confidence(self) -> bool:
        """Always."""
        return True

    def begin_step(self, view: StepView) -> Ints:
        """Whole blocks: what they are worth is known only when they are drafted."""
        return view.limits

    def admit(self, reveal: Reveal) -> None:
        """Leading slots at or above the threshold, at most as many as were proposed."""
        reveal.admit_trusted(self.t)

    def outcome(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""
