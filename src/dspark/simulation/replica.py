"""One simulated engine: the tick of ``engine/core.py`` with a cost model in place of the models."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from dspark.core import InputError
from dspark.scheduling import CostModel, SlotBook, StepOutcome, StepView, drafts_within, prefill_chunks
from dspark.scheduling.step_view import Floats, Ints
from dspark.simulation.history import Recorder
from dspark.simulation.planners import Planner, StepPlan
from dspark.simulation.running import Running
from dspark.simulation.texts import Texts


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions:
    """Sizes of an engine.

    Attributes:
        max_requests: most answers in progress at a time; others wait.
        max_batch_rows: most rows of one target forward; at least ``max_requests``.

    Raises:
        InputError: a size is out of range.
    """

    max_requests: int = 256
    max_batch_rows: int = 4096

    def __post_init__(self) -> None:
        if self.max_requests < 1:
            raise InputError(f"max_requests must be an integer >= 1, got {self.max_requests}")
        if self.max_batch_rows < self.max_requests:
            raise InputError(
                f"max_batch_rows must be at least max_requests ({self.max_requests}), got {self.max_batch_rows}"
            )


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A step at work.

    Attributes:
        view: what the planner was told; of nobody if only prompts are computed.
        plan: what it decided.
        decoding: [R] places of the requests that decode.
        accepted: [R] drafts that will be kept.
        filling: places of the others.
        chunks: prompt rows of each of them.
        context: mean number of keys that its rows see.
        seconds: of drafting, and of the rest.
    """

    view: StepView
    plan: StepPlan
    decoding: Ints
    accepted: Ints
    filling: Ints
    chunks: Ints
    context: float
    seconds: tuple[float, float]

    @property
    def rows(self) -> int:
        """Target rows."""
        return len(self.decoding) + int(self.plan.verified.sum()) + int(self.chunks.sum())


class Replica:
    """An engine whose steps take what a cost model says.

    Args:
        number: which one.
        planner: decides what is drafted and verified.
        costs: what steps take.
        texts: what requests are.
        options: sizes.
        recorder: told what happens.
    """

    def __init__(
        self,
        number: int,
        planner: Planner,
        costs: CostModel,
        texts: Texts,
        options: ReplicaOptions,
        recorder: Recorder,
    ) -> None:
        self.number, self._planner, self._costs, self._texts = number, planner, costs, texts
        self._options, self._recorder = options, recorder
        self._waiting: deque[int] = deque()
        self._running = Running(texts.lengths)
        self._book = SlotBook(options.max_requests)
        self._count = 0
        self._step: _Step | None = None

    @property
    def busy(self) -> bool:
        """Whether a step is at work."""
        return self._step is not None

    def add(self, text: int) -> None:
        """A request arrives."""
        self._waiting.append(text)

    def begin(self) -> float | None:
        """Begin the next step; its seconds, None if there is nothing to do."""
        assert self._step is None, "the step before is still at work"
        self._admit()
        if not len(self._running):
            return None
        self._step = self._decide()
        return sum(self._step.seconds)

    def finish(self, now: float) -> Ints:
        """The step is over; returns the requests that it ended."""
        step, self._step = self._step, None
        assert step is not None, "no step is at work"
        committed = self._commit(step, now)
        started = self._fill(step, now)
        self._recorder.step(
            now,
            sum(step.seconds),
            self.number,
            step.rows,
            int(step.chunks.sum()),
            len(step.decoding),
            int((step.plan.proposed > 0).sum()),
            int(step.plan.verified.sum()),
            int(step.accepted.sum()),
            committed,
            started,
        )
        self._count += 1
        ended = self._running.drop_ended()
        self._recorder.ended[ended] = now
        for text in ended.tolist():
            self._book.release(text)
        return ended

    def _admit(self) -> None:
        """First come, first served."""
        room = self._options.max_requests - len(self._running)
        texts = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        if texts:
            self._running.add(np.array(texts), *self._book.slots(texts))

    def _decide(self) -> _Step:
        running = self._running
        to_prefill = running.column("to_prefill")
        decoding, filling = np.nonzero(to_prefill == 0)[0], np.nonzero(to_prefill)[0]
        room, waits = self._options.max_batch_rows - len(decoding), to_prefill[filling].tolist()
        wishes = (running.column("max_tokens") - running.column("outputs") - 1)[decoding]
        block = self._texts.block_size
        limits = np.array(drafts_within(wishes.clip(max=block).tolist(), block, room, sum(waits)), np.int64)
        chunks = np.array(prefill_chunks(waits, room - int(limits.sum())), np.int64)
        view = self._view(decoding, limits, filling, chunks)
        if not len(decoding):
            plan, accepted = StepPlan(wanted=limits, proposed=limits, verified=limits), limits
        else:
            plan, accepted = self._plan(view, decoding)
            chunks = np.array(prefill_chunks(waits, room - int(plan.wanted.sum())), np.int64)
        rows = len(decoding) + int(plan.verified.sum()) + int(chunks.sum())
        context = self._keys(decoding, plan.verified, filling, chunks) / rows
        return _Step(
            view=view,
            plan=plan,
            decoding=decoding,
            accepted=accepted,
            filling=filling,
            chunks=chunks,
            context=context,
            seconds=(self._draft_seconds(plan), float(self._costs.verify.at(rows, context))),
        )

    def _view(self, decoding: Ints, limits: Ints, filling: Ints, chunks: Ints) -> StepView:
        running, prefill = self._running, int(chunks.sum())
        return StepView(
            step=self._count,
            slots=running.column("slot")[decoding],
            generations=running.column("generation")[decoding],
            limits=limits,
            num_prefill_rows=prefill,
            context=self._keys(decoding, np.zeros_like(limits), filling, chunks) / (len(decoding) + prefill),
        )

    def _keys(self, decoding: Ints, verified: Ints, filling: Ints, chunks: Ints) -> float:
        """Keys that all rows see together, each one itself and what is before it."""
        running = self._running
        before = (running.column("prompt") + running.column("outputs"))[decoding] - 1
        done = (running.column("prompt") - running.column("to_prefill"))[filling]
        return float(_seen(before, 1 + verified).sum() + _seen(done, chunks).sum())

    def _plan(self, view: StepView, decoding: Ints) -> tuple[StepPlan, Ints]:
        """The plan, and what will be accepted of it."""
        running = self._running
        text, outputs = running.column("text")[decoding], running.column("outputs")[decoding]
        wanted = self._planner.begin(view)
        blocks = self._texts.blocks(text, outputs, running.column("rounds")[decoding])
        plan = self._planner.plan(view, wanted, blocks)
        left = running.column("answer")[decoding] - outputs
        return plan, np.minimum(np.minimum(blocks.would_accept, plan.verified), left)

    def _draft_seconds(self, plan: StepPlan) -> float:
        drafting, draft = int((plan.proposed > 0).sum()), self._costs.draft
        if draft is None or not drafting:
            return 0.0
        return float(draft.at(drafting, int(plan.proposed.max())))

    def _commit(self, step: _Step, now: float) -> int:
        """Rounds are over: answers grow, and the planner hears of it."""
        running, places = self._running, step.decoding
        left = (running.column("answer") - running.column("outputs"))[places]
        tokens = np.minimum(step.accepted + 1, left)
        running.column("outputs")[places] += tokens
        running.column("rounds")[places] += 1
        if len(places):
            self._recorder.wrote(running.column("text")[places], tokens, now)
        cut = step.accepted == left  # a draft ended the answer; what was behind it counts as never looked at
        draft, verify = step.seconds
        self._planner.outcome(
            StepOutcome(
                step=step.view.step,
                slots=step.view.slots,
                generations=step.view.generations,
                proposed=step.plan.proposed,
                verified=np.where(cut, step.accepted, step.plan.verified),
                accepted=step.accepted,
                stated=step.plan.stated,
                rows=step.rows,
                context=step.context,
                verify_seconds=verify,
                draft_seconds=draft,
            )
        )
        return int(tokens.sum())

    def _fill(self, step: _Step, now: float) -> int:
        """Prompts are further; those that are whole get their first token."""
        running, places = self._running, step.filling
        if not len(places):
            return 0
        running.column("to_prefill")[places] -= step.chunks
        started = places[running.column("to_prefill")[places] == 0]
        running.column("outputs")[started] = 1
        self._recorder.started(running.column("text")[started], now)
        return len(started)


def _seen(before: Ints, rows: Ints) -> Floats:
    """[n] keys that runs of rows see, each run behind so many keys."""
    return rows * (before + (rows + 1) / 2)
