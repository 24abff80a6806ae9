"""Policy ``sync``: Algorithm 1 on the confidences of the step itself, which its early stop keeps lossless."""

from __future__ import annotations

from dspark.scheduling.cost_model import StepCosts
from dspark.scheduling.draft_chooser import ChooserOptions, DraftChooser, StepDrafts
from dspark.scheduling.reveal import Reveal
from dspark.scheduling.step_view import Ints, StepOutcome, StepView


class EarlyStop:
    """Admit the likeliest drafts one by one, and stop at the first that does not raise the throughput.

    Best on a smooth curve; in front of a cliff it stops, even where what lies behind would pay.

    Args:
        costs: of steps.
        block_size: G.
        num_slots: most requests in progress.
        options: how drafting is decided.
    """

    name = "sync"
    needs_confidence = True

    def __init__(
        self, costs: StepCosts, *, block_size: int, num_slots: int, options: ChooserOptions | None = None
    ) -> None:
        self.chooser = DraftChooser(costs, block_size, num_slots, options)
        self._drafts: StepDrafts | None = None

    def begin_step(self, view: StepView) -> Ints:
        """Who drafts, from past acceptance."""
        self._drafts = self.chooser.choose(view)
        return self._drafts.lengths

    def admit(self, reveal: Reveal) -> None:
        """A probe's drafts, then the climb."""
        assert self._drafts is not None, "admit before begin_step"
        reveal.admit_first(self._drafts.forced)
        reveal.climb(1.0 / self._drafts.seconds)

    def outcome(self, outcome: StepOutcome) -> None:
        """Take note."""
        self.chooser.outcome(outcome)
