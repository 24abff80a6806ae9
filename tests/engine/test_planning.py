"""The engine and its policy: who is asked what when, and that planning ahead changes no plan."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from dspark.core import SamplingParams
from dspark.engine import EngineCore
from dspark.engine.allotment import Allotment
from dspark.engine.outlook import Outlook
from dspark.engine.planning import Planner
from dspark.engine.sequence import Sequence
from dspark.scheduling import (
    ChooserOptions,
    CostModel,
    EarlyStop,
    FixedLength,
    PastCapacity,
    ProfileIdentity,
    Reveal,
    StepOutcome,
    StepView,
    TimeTable,
)

from .scripted import Scripted, warmed
from .tiny import completions, drain, engine, greedy, plain, random_prompts, tiny_drafter, tiny_target

VOCAB, SLOTS = 8, 6
PROMPTS = random_prompts(9, VOCAB, seed=51, longest=20)
PARAMS = [SamplingParams(temperature=0.9, max_tokens=8 + 3 * i, seed=i) for i in range(9)]


def costs(per_row: float, *, step: float = 0.02, draft: float = 0.001) -> CostModel:
    """A step takes so long, and so much longer for every row."""
    rows, requests = range(1, 65), range(1, 9)
    return CostModel(
        identity=ProfileIdentity(machine="", model="", dtype="", threads=1, backend=""),
        verify=TimeTable(widths=tuple(rows), depths=(0,), seconds=(tuple(step + per_row * (n - n % 3) for n in rows),)),
        draft=TimeTable(widths=tuple(requests), depths=(5,), seconds=(tuple(draft for _ in requests),)),
    )


class Watched:
    """A policy, and all that it is asked and told."""

    needs_confidence = False

    def __init__(self, inner: Any) -> None:
        self.inner, self.name = inner, inner.name
        self.events: list[tuple[str, int]] = []
        self.wanted: list[list[int]] = []
        self.outcomes: list[StepOutcome] = []
        self.views: list[StepView] = []

    def begin_step(self, view: StepView) -> np.ndarray:
        self.events.append(("begin", view.step))
        self.views.append(view)
        wanted = self.inner.begin_step(view)
        self.wanted.append(wanted.tolist())
        return wanted

    def admit(self, reveal: Reveal) -> None:
        self.events.append(("admit", self.views[-1].step))
        self.inner.admit(reveal)

    def outcome(self, outcome: StepOutcome) -> None:
        self.events.append(("outcome", outcome.step))
        self.outcomes.append(outcome)
        self.inner.outcome(outcome)


def planned(kind: type, per_row: float = 0.0005, **options: Any) -> Any:
    return kind(costs(per_row), block_size=5, num_slots=SLOTS, options=ChooserOptions(**options))


def served(core: EngineCore) -> list[tuple[Any, ...]]:
    """All that was drafted and verified, step by step, and the answers."""
    for prompt, params in zip(PROMPTS, PARAMS, strict=True):
        core.add_request(prompt, params)
    steps: list[tuple[Any, ...]] = []
    while core.has_unfinished():
        outputs = core.step()
        core.check_integrity()
        steps.append((core.last_step.rounds, [(o.request_id, o.token_ids) for o in outputs]))
    return steps


class Late(Planner):
    """Foresees a step when it should, but begins it only after the one before was judged and told."""

    def foresee(self, allotment: Allotment, running: Collection[Sequence]) -> None:
        self.seen = (Outlook.after(allotment, self._block_size), tuple(running))

    def finish(self, *args: Any, **kw: Any) -> StepOutcome:
        found = super().finish(*args, **kw)
        outlook, running = self.seen
        self._ahead = self._begin(outlook, self._step, running) if outlook.sequences else None
        return found


@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
def test_a_step_planned_while_the_last_one_runs_is_planned_alike(kind: type) -> None:
    """The same code in both orders: begun before the outcome of the step before is known, or after it."""
    target = tiny_target(VOCAB)
    runs = []
    for planner in (Planner, Late):
        core = engine(target, tiny_drafter(target), planned(kind), max_requests=SLOTS, plan_ahead=True)
        core._planner = planner(core.policy, block_size=5, num_slots=SLOTS)
        runs.append(served(core))
    assert runs[0] == runs[1]
    assert len({round.verified for rounds, _ in runs[0] for round in rounds}) > 2


@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
def test_where_nothing_is_unforeseen_planning_ahead_is_planning_in_order(kind: type) -> None:
    target = tiny_target(VOCAB)
    found = []
    for ahead in (False, True):
        core = engine(target, tiny_drafter(target), planned(kind), max_requests=SLOTS, plan_ahead=ahead)
        for i in range(SLOTS):
            core.add_request(PROMPTS[i], SamplingParams(temperature=0.9, max_tokens=80, seed=i))
        rounds = []
        for _ in range(12):  # no text can come to its end
            core.step()
            rounds.append(core.last_step.rounds)
        found.append(rounds)
    assert found[0] == found[1]
    assert any(round.verified for rounds in found[0] for round in rounds)


@pytest.mark.parametrize("squeeze", [{}, {"num_pages": 22, "max_context": 56}, {"max_batch_rows": 12}])
def test_those_who_decode_were_foreseen(squeeze: dict[str, int]) -> None:
    """Ends, arrivals, preemption and short rows: what was begun ahead is used in every step."""
    target = tiny_target(VOCAB)
    watched = Watched(planned(PastCapacity))
    core = engine(target, tiny_drafter(target), watched, max_requests=SLOTS, plan_ahead=True, **squeeze)
    found = completions(core, PROMPTS, greedy(24))
    assert [done.token_ids for done in found] == plain(target, PROMPTS, 24)
    begun = [step for name, step in watched.events if name == "begin"]
    again = len(begun) - len(set(begun))  # a preempted text whose pages are all found again goes on at once
    assert again <= sum(done.stats.preemptions for done in found)
    for step in begun[1:-1]:
        assert watched.events.index(("begin", step)) < watched.events.index(("outcome", step - 1))


def test_in_order_on_cpu() -> None:
    target = tiny_target(VOCAB)
    watched = Watched(planned(PastCapacity))
    completions(engine(target, tiny_drafter(target), watched, max_requests=SLOTS), PROMPTS, greedy(20))
    steps = [step for name, step in watched.events if name == "outcome"]
    assert steps == list(range(len(steps)))
    for step in steps:
        names = [name for name, number in watched.events if number == step]
        assert names in (["outcome"], ["begin", "outcome"], ["begin", "admit", "outcome"])
    assert len(
        {tuple(generations) for view in watched.views for generations in view.generations[:, None].tolist()}
    ) == len(PROMPTS)


def test_outcomes_say_what_happened() -> None:
    target = tiny_target(VOCAB)
    watched = Watched(FixedLength())
    core = engine(target, tiny_drafter(target), watched, max_requests=SLOTS)
    found = completions(core, PROMPTS, greedy(20))
    told, stats = watched.outcomes, [done.stats for done in found]
    assert sum(int(o.proposed.sum()) for o in told) == sum(s.drafted for s in stats)
    assert sum(int(o.verified.sum()) for o in told) == sum(s.verified for s in stats)
    assert sum(int(o.accepted.sum()) for o in told) == sum(s.accepted for s in stats)
    assert sum(o.rows for o in told) >= sum(map(len, PROMPTS)) + sum(s.rounds + s.verified for s in stats)
    for outcome in told:
        assert outcome.verify_seconds > 0
        assert outcome.context >= 0.5
        if outcome.block:
            assert outcome.stated is not None
            assert ((outcome.stated >= 0).sum(axis=1) == outcome.proposed).all()


def test_a_confidence_that_is_no_number_is_none() -> None:
    """Metrics and records add confidences up; one that is no number would spoil their sums for good."""
    drafter = Scripted(2, lambda block, request: [float("nan"), 0.5])
    core = warmed(FixedLength(), drafter, requests=1, steps=2)
    (found,) = core.last_step.rounds
    assert found.believed == (0.0, 0.5)


@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
def test_steps_that_fail_after_the_next_one_was_planned(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy has begun the step after it already, and then begins the failed one anew."""
    target = tiny_target(VOCAB)
    watched = Watched(planned(kind))
    core = engine(target, tiny_drafter(target), watched, max_requests=SLOTS, plan_ahead=True)
    judge, left = core._worker.judge, []

    def failing(*args: Any) -> Any:
        left.append(0)
        if len(left) % 2:
            raise RuntimeError("injected")
        return judge(*args)

    monkeypatch.setattr(core._worker, "judge", failing)
    names, texts = [core.add_request(prompt, greedy(24)) for prompt in PROMPTS], {}
    while core.has_unfinished():
        with pytest.raises(RuntimeError, match="injected"):
            core.step()
        for output in core.step():
            core.check_integrity()
            if output.completion is not None:
                texts[output.request_id] = output.completion.token_ids
    assert [texts[name] for name in names] == plain(target, PROMPTS, 24)
    steps = [step for name, step in watched.events if name == "outcome"]
    assert steps == list(range(len(steps)))
    assert any(outcome.accepted.any() for outcome in watched.outcomes)


@pytest.mark.pitfall(29)
def test_the_drafter_is_not_called_where_drafting_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target(VOCAB)
    drafter, calls = tiny_drafter(target), []
    propose = drafter.propose
    monkeypatch.setattr(drafter, "propose", lambda batch: (calls.append(batch), propose(batch))[1])
    dear = PastCapacity(costs(0.02), block_size=5, num_slots=SLOTS)
    core = engine(target, drafter, dear, max_requests=SLOTS)
    found = completions(core, PROMPTS, greedy(20))
    assert [done.token_ids for done in found] == plain(target, PROMPTS, 20)
    rounds = sum(done.stats.rounds for done in found)
    assert len(calls) < rounds / 8, "probes alone"


@pytest.mark.pitfall(28)
def test_rows_of_the_forward_fall_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not admitted never reaches the target."""
    target = tiny_target(VOCAB)
    forward, rows = target.forward, []

    def counting(batch: Any, **kw: Any) -> Any:
        rows[-1] += batch.num_rows
        return forward(batch, **kw)

    monkeypatch.setattr(target, "forward", counting)
    verified = []
    for per_row in (0.0, 0.001, 0.02):
        rows.append(0)
        policy = planned(PastCapacity, per_row, always_draft=True)
        found = completions(engine(target, tiny_drafter(target), policy, max_requests=SLOTS), PROMPTS, greedy(24))
        verified.append(sum(done.stats.verified for done in found))
        rounds = sum(done.stats.rounds for done in found)
        assert rows[-1] <= sum(map(len, PROMPTS)) + rounds + sum(done.stats.drafted for done in found)
    assert verified[0] > verified[1] > verified[2]
    assert rows[0] > rows[1] > rows[2]


def test_prompts_get_the_rows_that_drafts_leave() -> None:
    target = tiny_target(VOCAB)
    chunks = []
    for policy in (FixedLength(), FixedLength(0)):
        core = engine(target, tiny_drafter(target), policy, max_batch_rows=24, max_requests=4)
        for prompt in ([1], [2], [3]):
            core.add_request(prompt, greedy(40))
        core.step()
        core.add_request([4] * 60, greedy(2))
        core.step()
        chunks.append(core.last_step.prefill_rows)
        drain(core)
    assert chunks == [24 - 3 - 15, 24 - 3]
