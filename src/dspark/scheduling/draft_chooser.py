"""What the policies that know their costs have in common: memory of requests, and who drafts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from dspark.scheduling.acceptance import AcceptanceEstimates, AcceptancePrior
from dspark.scheduling.capacity import PastSurvivals
from dspark.scheduling.cost_model import StepCosts
from dspark.scheduling.draft_choice import DraftChoice, blocks_to_try, choose_drafts
from dspark.scheduling.exploration import ExplorationOptions, Explorer, probe_price
from dspark.scheduling.slots import Ledger
from dspark.scheduling.step_view import LAG, Floats, Ints, StepOutcome, StepView
from dspark.scheduling.survival_history import SurvivalHistory

_FEW, _SELDOM = 1024, 8
"""With more candidate drafts than this, other block lengths than the last are tried in every eighth step only."""


@dataclass(frozen=True, kw_only=True)
class ChooserOptions:
    """How drafting is decided.

    Attributes:
        prior: of acceptance.
        exploration: of trying again.
        margin: plain decoding is left only for a gain above this share.
        always_draft: draft whole blocks for everybody, as the method does; for comparison.
    """

    prior: AcceptancePrior = field(default_factory=AcceptancePrior)
    exploration: ExplorationOptions = field(default_factory=ExplorationOptions)
    margin: float = 0.01
    always_draft: bool = False


@dataclass(frozen=True, kw_only=True)
class StepDrafts:
    """Who drafts in a step, and what the plan of the step needs to know. R requests, G slots.

    Attributes:
        lengths: [R] drafts of each.
        planned: [R] how many to verify without a confidence head.
        forced: [R] drafts that are verified whatever their confidence: a probe's.
        expected: [R, G] survival that past acceptance promises.
        seconds: [n + 1] of the whole step with 0, 1, .. n drafts verified on top of the forced ones.
        tokens: expected without further drafts: one per request and what the probe brings.
    """

    lengths: Ints
    planned: Ints
    forced: Ints
    expected: Floats
    seconds: Floats
    tokens: float


class DraftChooser:
    """Remembers requests by slot and generation, and decides who drafts from outcomes at least two steps old.

    Args:
        costs: of steps; told what steps really took.
        block_size: G.
        num_slots: most requests in progress.
        options: how.
    """

    def __init__(self, costs: StepCosts, block_size: int, num_slots: int, options: ChooserOptions | None) -> None:
        self.costs, self.options, self._block_size = costs, options or ChooserOptions(), block_size
        self._ledger = Ledger(num_slots)
        self.acceptance = AcceptanceEstimates(num_slots, block_size, self.options.prior)
        self.explorer = Explorer(num_slots, self.options.exploration)
        self._history = SurvivalHistory(num_slots, block_size)
        self._waiting: deque[StepOutcome] = deque()
        self._block = 0

    def outcome(self, outcome: StepOutcome) -> None:
        """Keep a finished step until it is old enough for whatever is begun from now on, which is a later one."""
        self._waiting.append(outcome)
        self._learn_for(outcome.step + 1)

    def choose(self, view: StepView) -> StepDrafts:
        """Decide a step."""
        self._learn_for(view.step)
        changed = self._ledger.claim(view.slots, view.generations)
        for table in (self.acceptance, self.explorer, self._history):
            table.clear(changed)
        expected = self.acceptance.survival(view.slots)
        most = view.base_rows + int(view.limits.sum()) + self._block_size
        verify = _without_prefill(self.costs.verify_curve(most, view.context), view)
        choice = self._all(view, verify) if self.options.always_draft else self._choice(expected, view, verify)
        forced = self._probe(view, choice, verify)
        return self._drafts(view, choice, forced, expected, verify)

    def past(self, view: StepView, drafts: StepDrafts) -> PastSurvivals:
        """[M, R, G] what the confidence head said of each request before, cut to what will be drafted."""
        rounds = self._history.snapshots(view.slots, drafts.expected)
        room = np.where(drafts.forced > 0, 0, drafts.lengths)
        return PastSurvivals(np.where(np.arange(self._block_size) < room[:, None], rounds, 0.0))

    def _choice(self, expected: Floats, view: StepView, verify: Floats) -> DraftChoice:
        longest = min(int(view.limits.max(initial=0)), self._block_size)
        blocks = blocks_to_try(self.costs.draft_blocks(), longest)
        if view.num_requests * longest > _FEW and view.step % _SELDOM and self._block:
            blocks = [min(self._block, longest)] if blocks else []
        choice = choose_drafts(expected, view, self.costs, verify, blocks=blocks, margin=self.options.margin)
        self._block = int(choice.lengths.max(initial=0)) or self._block
        return choice

    def _all(self, view: StepView, verify: Floats) -> DraftChoice:
        seconds = float(verify[view.base_rows])
        rate = view.num_requests / seconds
        return DraftChoice(lengths=view.limits, planned=view.limits, throughput=rate, plain=rate, seconds=seconds)

    def _probe(self, view: StepView, choice: DraftChoice, verify: Floats) -> Ints:
        """[R] drafts of the request that tries again, if one does."""
        forced = np.zeros(view.num_requests, np.int64)
        request = self.explorer.candidate(view, choice.lengths)
        if request is None:
            return forced
        block, number = self.explorer.block(view, request), int((choice.lengths > 0).sum())
        longest = int(choice.lengths.max(initial=0))
        draft = np.array(
            (
                self.costs.draft_curve(number, longest)[number],
                self.costs.draft_curve(number + 1, max(longest, block))[number + 1],
            )
        )
        rows, worth = view.base_rows + int(choice.planned.sum()), 1.0 / choice.throughput
        price = probe_price(draft, verify, rows, block)
        self.explorer.earn(choice.seconds, price)
        if self.explorer.try_now(view, request, price, worth):
            forced[request] = block
        return forced

    def _drafts(
        self, view: StepView, choice: DraftChoice, forced: Ints, expected: Floats, verify: Floats
    ) -> StepDrafts:
        lengths = np.maximum(choice.lengths, forced)
        number, base = int((lengths > 0).sum()), view.base_rows + int(forced.sum())
        draft = self.costs.draft_curve(number, int(lengths.max(initial=0)))[number]
        brought = expected[np.arange(self._block_size) < forced[:, None]].sum()
        return StepDrafts(
            lengths=lengths,
            planned=np.maximum(choice.planned, forced),
            forced=forced,
            expected=expected,
            seconds=draft + verify[base : base + int(lengths.sum() - forced.sum()) + 1],
            tokens=view.num_requests + float(brought),
        )

    def _learn_for(self, step: int) -> None:
        """All that may be known when a step is planned."""
        while self._waiting and self._waiting[0].step <= step - LAG:
            self._learn(self._waiting.popleft())

    def _learn(self, outcome: StepOutcome) -> None:
        """Everything that a finished step says."""
        known = self._ledger.owned(outcome.slots, outcome.generations)
        self.explorer.settle(outcome)
        ignored = None
        if outcome.stated is not None and outcome.block:
            self._remember(outcome, known & (outcome.proposed > 0), outcome.stated)
            ignored = np.where((outcome.proposed > 0) & (outcome.verified == 0), outcome.stated[:, 0], np.nan)
        self.acceptance.observe(outcome.slots, known, outcome.verified, outcome.accepted, ignored)
        self.costs.observe("verify", outcome.rows, outcome.context, outcome.verify_seconds)
        self.costs.observe("draft", outcome.num_drafting, outcome.block, outcome.draft_seconds)

    def _remember(self, outcome: StepOutcome, rows: np.ndarray, stated: Floats) -> None:
        if rows.all():
            self._history.push(outcome.slots, stated)
        else:
            self._history.push(outcome.slots[rows], stated[rows])


def _without_prefill(verify: Floats, view: StepView) -> Floats:
    """Seconds of a step, less what its prefill adds to plain decoding.

    Prompts have to be computed whatever is drafted. Drafts are priced at their true place on the curve, behind the rows
    of prefill, but the time of those is none that further tokens could make worth while.
    """
    if not view.num_prefill_rows or not view.num_requests:
        return verify
    return verify - max(float(verify[view.base_rows] - verify[view.num_requests]), 0.0)
