"""Policy ``async``, the default: how much is decided from confidences two steps old, whose from the current ones."""

from __future__ import annotations

from dspark.scheduling.capacity import Capacity, search_capacity
from dspark.scheduling.cost_model import StepCosts
from dspark.scheduling.draft_chooser import ChooserOptions, DraftChooser, StepDrafts
from dspark.scheduling.reveal import Reveal
from dspark.scheduling.step_view import Ints, StepOutcome, StepView


class PastCapacity:
    """Admit the likeliest drafts of the current step, as many as the past says pay on the whole, jagged curve.

    All but the ranking is decided in ``begin_step``, which sees finished steps only and can run while the step before
    is still at work; ranking for a given capacity is lossless (:mod:`dspark.scheduling.reveal`). Without a confidence
    head it verifies what past acceptance promises.

    Args:
        costs: of steps.
        block_size: G.
        num_slots: most requests in progress.
        options: how drafting is decided.
        floors: where few requests run, let a floor on survival take the place of a fixed capacity if that was better.
    """

    name = "async"
    needs_confidence = False

    def __init__(
        self,
        costs: StepCosts,
        *,
        block_size: int,
        num_slots: int,
        options: ChooserOptions | None = None,
        floors: bool = True,
    ) -> None:
        self.chooser = DraftChooser(costs, block_size, num_slots, options)
        self._floors = floors
        self._drafts: StepDrafts | None = None
        self.capacity: Capacity | None = None

    def begin_step(self, view: StepView) -> Ints:
        """Who drafts, and how many drafts will be verified, from finished steps."""
        self._drafts = drafts = self.chooser.choose(view)
        self.capacity = None
        if len(drafts.seconds) > 1:
            past = self.chooser.past(view, drafts)
            self.capacity = search_capacity(past, drafts.seconds, tokens=drafts.tokens, floors=self._floors)
        return drafts.lengths

    def admit(self, reveal: Reveal) -> None:
        """A probe's drafts, then the likeliest ones."""
        assert self._drafts is not None, "admit before begin_step"
        if not reveal.has_confidence:
            reveal.admit_first(self._drafts.planned)
            return
        reveal.admit_first(self._drafts.forced)
        if self.capacity is not None:
            reveal.admit_top(self.capacity.count, self.capacity.floor)

    def outcome(self, outcome: StepOutcome) -> None:
        """Take note."""
        self.chooser.outcome(outcome)
