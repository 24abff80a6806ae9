"""A step that fails at any place leaves every answer as it was, and can be tried again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

import dspark.engine.core as core_module
import dspark.engine.worker as worker_module
from dspark.core import RequestsFailedError, SamplingParams
from dspark.engine import EngineCore
from dspark.engine.interrupts import interrupts_deferred

from .tiny import completions, drain, engine, random_prompts, tiny_drafter, tiny_target, whole

VOCAB = 8
PROMPTS = random_prompts(5, VOCAB, seed=41, longest=14)
PARAMS = [SamplingParams(temperature=0.7, max_tokens=14, seed=i, logprobs=1) for i in range(5)]
SQUEEZED = {"num_pages": 16, "max_context": 40, "max_batch_rows": 16}

STAGES = [
    "allot",
    "begin",
    "propose",
    "fetch",
    "admit",
    "shares",
    "pack",
    "forward",
    "judge_rows",
    "outcomes",
    "committed_rows",
    "observe",
]


class FaultError(Exception):
    """Injected."""


def make_engine() -> EngineCore:
    target = tiny_target(VOCAB)
    return engine(target, tiny_drafter(target), **SQUEEZED)


def saboteur(inner: Callable[..., Any], error: type[BaseException], *, late: bool) -> Callable[..., Any]:
    """``inner``, failing once: before it does its work, or after."""
    left = [error]

    def sabotaged(*args: Any, **kwargs: Any) -> Any:
        if left and not late:
            raise left.pop()("injected")
        result = inner(*args, **kwargs)
        if left:
            raise left.pop()("injected")
        return result

    return sabotaged


def state(core: EngineCore) -> list[tuple[Any, ...]]:
    """All of a sequence that a user could ever see; where it is computed again counts as no change."""
    return sorted(
        (s.arrival, tuple(s.token_ids), s.round, s.transcript, tuple(s.origins), tuple(s.logprobs), s.tally.rounds)
        for s in core._roster
    )


@pytest.fixture(scope="module")
def undisturbed() -> list[tuple[int, ...]]:
    return [done.token_ids for done in completions(make_engine(), PROMPTS, PARAMS)]


@pytest.mark.parametrize("error", [FaultError, KeyboardInterrupt])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_changes_nothing(
    stage: str,
    late: bool,
    error: type[BaseException],
    undisturbed: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = make_engine()
    names = [core.add_request(prompt, params) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]
    outputs: dict[str, list[Any]] = {name: [] for name in names}
    places = {"allot": core_module, "begin": core._planner, "admit": core._planner}
    place: Any = (places | {"forward": core.target, "observe": core.drafter}).get(stage, worker_module)
    failures = 0
    for step in range(400):
        if not core.has_unfinished():
            break
        with monkeypatch.context() as patch:
            if step % 2 == 0:
                patch.setattr(place, stage, saboteur(getattr(place, stage), error, late=late))
                before = state(core)
                try:
                    gained = core.step()
                except error:
                    failures += 1
                    core.check_integrity()
                    assert state(core) == before
                    continue
                assert stage in ("propose", "fetch"), "only these are left out where nobody drafts"
            else:
                gained = core.step()
            for output in gained:
                outputs[output.request_id].append(output)
            core.check_integrity()
    assert failures > 5
    assert [whole(outputs[name]).token_ids for name in names] == undisturbed


def test_ctrl_c_during_the_commit_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    core = make_engine()
    for prompt, params in zip(PROMPTS, PARAMS, strict=True):
        core.add_request(prompt, params)
    commit, calls = core_module.commit, []

    def interrupted(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        commit(*args)

    monkeypatch.setattr(core_module, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        core.step()
    core.check_integrity()
    gained = {s.request.request_id for s in core._roster.running if s.num_output}
    assert gained
    assert len(calls) == len(core._roster.running), "the commit was cut in two"
    assert gained <= {output.request_id for output in core.step()}, "the next step hands out what was committed"
    drain(core)


def interrupted_inside(reached: list[str]) -> None:
    with interrupts_deferred():
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
            reached.append("inner")
        reached.append("outer")


def test_interrupts_are_held_back_and_then_delivered() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_inside(reached)
    assert reached == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_that_are_not_python_s_are_left_alone() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


def spoil(core: EngineCore, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the target's rows of one request hold no numbers."""
    inner = worker_module.judge_rows

    def judged(shares: Any, logits: Any, *args: Any) -> Any:
        rows = [len(share.logit_rows) for share in shares]
        owner = [share.sequence.request.request_id for share, n in zip(shares, rows, strict=True) for _ in range(n)]
        spoiled = logits.clone()
        spoiled[[owned == name for owned in owner]] = float("nan")
        return inner(shares, spoiled, *args)

    monkeypatch.setattr(worker_module, "judge_rows", judged)


@pytest.mark.parametrize("params", [PARAMS, [SamplingParams(temperature=0.0, max_tokens=14)] * 5], ids=["T", "greedy"])
def test_rows_without_numbers_fail_by_name_and_the_others_go_on(
    params: list[SamplingParams], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [done.token_ids for done in completions(make_engine(), PROMPTS, params)]
    core = make_engine()
    names = [core.add_request(prompt, option) for prompt, option in zip(PROMPTS, params, strict=True)]
    spoil(core, names[2], monkeypatch)
    with pytest.raises(RequestsFailedError, match="not finite") as raised:
        drain(core)
    assert raised.value.request_ids == {names[2]}
    gained = {output.request_id: [output] for output in core.abort(names[2])}
    assert gained[names[2]][0].completion is not None
    outputs = drain(core)
    for place in (0, 1, 3, 4):
        done = outputs[names[place]][-1].completion
        assert done is not None
        assert done.token_ids == expected[place]
