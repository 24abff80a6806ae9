"""The tick: admit, begin, propose, plan, pack, forward, judge, observe, commit, emit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from transformers import PreTrainedTokenizerBase

from dspark.calibration import Calibration, OnlineCalibration
from dspark.core import DsparkError, FinishReason, InputError, SamplingParams
from dspark.drafters import Drafter, NullDrafter
from dspark.engine.allotment import Allotment, allot
from dspark.engine.blocks import Blocks
from dspark.engine.clock import StepClock
from dspark.engine.commit import commit, report, report_abort, round_stats
from dspark.engine.constraints import check_constrained, within_constraints
from dspark.engine.drafting import Draws
from dspark.engine.intake import Intake
from dspark.engine.interrupts import interrupts_deferred
from dspark.engine.options import EngineOptions
from dspark.engine.outcome import Outcome
from dspark.engine.outputs import StepOutput, StepStats
from dspark.engine.planning import Admission, Plan, Planner
from dspark.engine.roster import Roster
from dspark.engine.scheduling_state import SchedulingState, scheduling_state
from dspark.engine.worker import Worker
from dspark.kvcache import PagePool, PoolStats
from dspark.scheduling import FixedLength, StepCosts, StepOutcome, StepPolicy, check_policy
from dspark.target import PackedTarget
from dspark.verify import TokenConstraint


class EngineCore:
    """Continuous batching over one target and one drafter, a step at a time.

    It knows token ids; texts only on the way out. It belongs to one thread. The target's and the drafter's memory is
    allocated here and belongs to this engine from then on.

    Args:
        target: the model.
        drafter: who proposes; None for plain decoding.
        policy: how much is drafted and how much of that is verified, made for blocks of this drafter and for at least
            ``options.max_requests`` slots, and for this engine alone; None for whole blocks.
        options: sizes.
        tokenizer: turns answers into text; None leaves texts empty.
        calibration: makes probabilities of the drafter's confidences before the policy sees them; None leaves them.
        online: corrects them further by what is observed; None does not.
        costs: what the policy plans with, only to be shown.

    Raises:
        InputError: sizes that do not fit, or a policy that needs confidences the drafter does not give.
    """

    def __init__(
        self,
        target: PackedTarget,
        drafter: Drafter | None = None,
        policy: StepPolicy | None = None,
        *,
        options: EngineOptions,
        tokenizer: PreTrainedTokenizerBase | None = None,
        calibration: Calibration | None = None,
        online: OnlineCalibration | None = None,
        costs: StepCosts | None = None,
    ) -> None:
        self.target = target
        self.drafter: Drafter = drafter or NullDrafter()
        self.policy: StepPolicy = policy or FixedLength()
        self.options, self.online, self._costs = options, online, costs
        self.last_step = StepStats()
        self._last_outcome: StepOutcome | None = None
        check_policy(self.policy, self.drafter.has_confidence, f"drafter {self.drafter.name!r}")
        self.max_context = options.context_limit(target.facts.max_positions, target.page_size)
        target.set_taps(self.drafter.tap_layers)
        target.allocate(options.num_pages)
        self._allocation = target.allocations
        self.drafter.allocate(options.num_pages, target.page_size)
        pool = PagePool(options.num_pages, target.page_size, prefix_cache=options.prefix_cache)
        self._roster = Roster(pool, self.drafter.block_size, options.max_requests)
        self._worker = Worker(
            target, self.drafter, calibration=calibration, online=online, record=options.record_rounds
        )
        self._planner = Planner(self.policy, block_size=self.drafter.block_size, num_slots=options.max_requests)
        self._plans_ahead = target.device.type == "cuda" if options.plan_ahead is None else options.plan_ahead
        self.eos_ids = target.facts.eos_token_ids | _eos_ids(tokenizer)
        self._intake = Intake(
            vocab_size=target.facts.vocab_size,
            eos_ids=self.eos_ids,
            context=self.max_context,
            tokenizer=tokenizer,
            seed=options.seed,
        )
        self._arrivals, self._names = count(), count()
        self._outbox: list[StepOutput] = []

    def add_request(
        self,
        prompt_token_ids: Iterable[int],
        params: SamplingParams | None = None,
        *,
        prompt: str | None = None,
        request_id: str | None = None,
        constraint: Callable[[], TokenConstraint] | None = None,
    ) -> str:
        """Queue a request; its first tokens come with one of the next steps.

        The sample of a request depends on its seed and on the verify lengths of its rounds. With the fixed policy these
        are the same alone and in a batch, unless rows are short (see :class:`EngineOptions`); with a policy that reads
        confidences or load, two runs with one seed can differ, though both follow the target's distribution.

        Args:
            prompt_token_ids: ids of the prompt.
            params: sampling options; None for the defaults.
            prompt: its text, if there is one, only to be handed back.
            request_id: a unique name; None makes one.
            constraint: makes, for each answer, what says which tokens may follow; None for no such rule.

        Returns:
            The request's name.

        Raises:
            InputError: what is wrong with the prompt, the options, or the name.
        """
        if params is None:
            params = SamplingParams()
        if not isinstance(params, SamplingParams):
            raise InputError(f"params must be SamplingParams, got {type(params).__name__}")
        name = f"request-{next(self._names)}" if request_id is None else request_id
        if name in self._roster:
            raise InputError(f"there is an unfinished request named {name!r} already")
        request = self._intake.request(name, prompt_token_ids, params, prompt)
        sequences = self._intake.sequences(request, self._arrivals)
        if constraint is not None:
            check_constrained(params)
            for sequence in sequences:
                sequence.constraint = constraint()
        with interrupts_deferred():
            self._roster.add(sequences)
        return name

    def check_request(self, prompt_token_ids: Iterable[int], params: SamplingParams, *, constrained: bool) -> None:
        """See whether :meth:`add_request` would take a request; may be called from any thread.

        Raises:
            InputError: what is wrong with the prompt or the options.
        """
        self._intake.check(prompt_token_ids, params)
        if constrained:
            check_constrained(params)

    def abort(self, request_id: str) -> list[StepOutput]:
        """End all answers of a request; returns their last outputs. A finished or unknown request is no error."""
        if request_id not in self._roster:
            return []
        gone = [sequence for sequence in self._roster if sequence.request.request_id == request_id]
        with interrupts_deferred():
            for sequence in gone:
                self._roster.retire(sequence, FinishReason.ABORT)
        return [report_abort(sequence) for sequence in gone]

    def has_unfinished(self) -> bool:
        """Whether another step has something to do or to hand out."""
        return len(self._roster) > 0 or bool(self._outbox)

    def step(self) -> list[StepOutput]:
        """One tick.

        If anything in it fails, every answer is as it was before, and the step can simply be tried again.

        Returns:
            What the step added to answers, finished ones included.

        Raises:
            RequestsFailedError: target or drafter compute no numbers for some requests; abort those and go on.
            DsparkError: the target's pages belong to someone else by now.
        """
        if self.target.allocations != self._allocation:
            raise DsparkError(
                "the memory of this target belongs to an engine that was made later; go on with that one, or load the "
                "target a second time"
            )
        clock = StepClock()
        allotment = self._admit()
        if allotment.ready or allotment.chunks:
            self._advance(allotment, clock)
        else:
            assert not len(self._roster), "there are unfinished requests, but none can move"
        outputs, self._outbox = self._outbox, []
        return outputs

    def scheduling(self) -> SchedulingState:
        """What policy, costs and calibration are doing."""
        return scheduling_state(self.policy, self._last_outcome, self._costs, self.online)

    def pool_stats(self) -> PoolStats:
        """Pages in use, cached and free."""
        return self._roster.pool.stats()

    def check_integrity(self) -> None:
        """Check all bookkeeping from scratch.

        Raises:
            AssertionError: with the reason.
        """
        self._roster.check_integrity()

    def _admit(self) -> Allotment:
        """Let in who fits, and share out the rows of this step."""
        with interrupts_deferred():
            if not self._roster.make_room():
                self._roster.admit()
        return allot(self._roster.running, self.drafter.block_size, self.options.max_batch_rows)

    def _advance(self, allotment: Allotment, clock: StepClock) -> None:
        """Begin, propose, plan, pack, forward, judge, observe; then commit."""
        worker, planner, running = self._worker, self._planner, self._roster.running
        plan = planner.begin(allotment, running)
        if plan is not None:
            allotment = allotment.cut(plan.limits(allotment))
        draws = Draws.of(allotment.judged, self.drafter.block_size)
        with clock.of("draft"):
            blocks = worker.draft(allotment, draws)
        admission = planner.admit(plan, allotment, blocks)
        lengths = within_constraints(admission.lengths, allotment.ready, blocks)
        work, batch = worker.pack(allotment, blocks, lengths)
        with clock.of("forward"):
            output = worker.forward(batch)
        if self._plans_ahead:
            planner.foresee(allotment, running)
        with clock.of("sample"):
            decided = worker.judge(work, output, draws, blocks)
        with clock.of("draft"):
            worker.keep(decided, batch, output, later=_nobody_wants(plan))
        with interrupts_deferred():
            self._commit(decided, allotment, clock)
            self._learn(plan, admission, blocks, decided)

    def _commit(self, decided: list[Outcome], allotment: Allotment, clock: StepClock) -> None:
        """Make the outcomes true and put what they add into the outbox."""
        for outcome in decided:
            commit(outcome, self._roster)
        self._outbox.extend(report(outcome) for outcome in decided if outcome.written is not None)
        self.last_step = self._stats(decided, allotment, clock)

    def _learn(self, plan: Plan | None, admission: Admission, blocks: Blocks, decided: list[Outcome]) -> None:
        """Tell policy and calibration what came of the step."""
        spent = self.last_step
        found = self._planner.finish(
            plan,
            decided,
            admission,
            verify_seconds=spent.seconds - spent.draft_seconds,
            draft_seconds=0.0 if spent.prefill_rows else spent.draft_seconds,  # prompts' upkeep is no price of drafts
        )
        drafting = len(blocks.lengths)
        self._worker.learn(blocks, found.verified[:drafting], found.accepted[:drafting])
        self._last_outcome = found

    def _stats(self, decided: list[Outcome], allotment: Allotment, clock: StepClock) -> StepStats:
        return StepStats(
            rows=sum(outcome.share.num_rows for outcome in decided),
            prefill_rows=allotment.num_prefill_rows,
            verify_lens=tuple([len(outcome.share.drafts) for outcome in decided[: len(allotment.ready)]]),
            rounds=tuple([round_stats(outcome) for outcome in decided[: len(allotment.ready)]]),
            committed=sum(len(outcome.tokens) for outcome in decided),
            draft_seconds=clock.seconds("draft"),
            forward_seconds=clock.seconds("forward"),
            sample_seconds=clock.seconds("sample"),
            host_seconds=clock.rest(),
            running=len(self._roster.running),
            waiting=len(self._roster.waiting),
        )


def _nobody_wants(plan: Plan | None) -> bool:
    """Whether the policy wants no drafts where there could be some."""
    return plan is not None and not plan.wanted.any() and bool(plan.view.limits.any())


def _eos_ids(tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    """The tokenizer's idea of the end of a text, which chat models add to that of their configuration."""
    eos = None if tokenizer is None else tokenizer.eos_token_id
    return frozenset() if eos is None else frozenset((eos,))
