"""The drafter's context after rounds in which nobody drafted: as if it had been kept up to date all the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dspark.core import CommittedRows, SamplingParams
from dspark.engine import EngineCore
from dspark.engine.upkeep import Upkeep
from dspark.scheduling import Reveal, StepOutcome, StepView

from . import test_eagle3, test_memory
from .test_eagle3 import tiny_eagle
from .tiny import completions, engine, greedy, plain, random_prompts, tiny_drafter, tiny_target

VOCAB = 8


class InTurns:
    """Drafts in some steps and not in others, and verifies what it is told."""

    name, needs_confidence = "in turns", False

    def __init__(self, pattern: str, verify: int = 5) -> None:
        self.pattern, self.verify = pattern, verify

    def begin_step(self, view: StepView) -> np.ndarray:
        return view.limits * (self.pattern[view.step % len(self.pattern)] == "d")

    def admit(self, reveal: Reveal) -> None:
        reveal.admit_first(np.full(len(reveal.proposed), self.verify))

    def outcome(self, outcome: StepOutcome) -> None:
        pass


def make(kind: str, target: Any) -> Any:
    return tiny_eagle(target) if kind == "eagle3" else tiny_drafter(target)


def assert_as_fresh(core: EngineCore, kind: str) -> None:
    core._worker.upkeep.catch_up()
    (test_eagle3 if kind == "eagle3" else test_memory).assert_as_fresh(core)


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
@pytest.mark.parametrize(("pattern", "verify"), [("pppp", 0), ("dp", 5), ("dppp", 2), ("ddp", 0), ("pppd", 1)])
def test_after_rounds_without_drafts(kind: str, pattern: str, verify: int) -> None:
    target = tiny_target(VOCAB)
    core = engine(target, make(kind, target), InTurns(pattern, verify))
    core.add_request([1, 5, 2, 2, 7, 3], SamplingParams(temperature=1.0, max_tokens=60, seed=2))
    for _ in range(12):
        core.step()
    assert_as_fresh(core, kind)


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
@pytest.mark.pitfall(21)
def test_drafts_after_a_pause_are_those_of_a_fresh_run(kind: str) -> None:
    """Same text, same context, same block: proposals do not tell how long nobody drafted."""
    target = tiny_target(VOCAB)
    pausing = engine(target, make(kind, target), InTurns("pppppd"), record_rounds=True)
    (found,) = completions(pausing, [[1, 5, 2, 2, 7, 3]], greedy(40))
    steady = engine(target, make(kind, target), record_rounds=True)
    drafted = [trace for trace in found.stats.traces if trace.drafted]
    assert len(drafted) > 3
    for trace in drafted:
        text = [1, 5, 2, 2, 7, 3, *found.token_ids]
        (fresh,) = completions(steady, [text[: trace.anchor_position]], greedy(3 + len(trace.drafted)))
        first = next(other for other in fresh.stats.traces if other.anchor_position == trace.anchor_position)
        assert first.drafted[: len(trace.drafted)] == trace.drafted[: len(first.drafted)]
        for ours, theirs in zip(trace.confidence, first.confidence, strict=False):
            assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("kind", ["dspark", "eagle3"])
@pytest.mark.parametrize("pattern", ["ppppppd", "d"])
def test_pages_that_changed_hands_meanwhile(kind: str, pattern: str) -> None:
    """Few pages, prefix hits, preemption: rows of dead texts never end up in living ones."""
    target = tiny_target(VOCAB)
    prompts = random_prompts(10, VOCAB, seed=61, longest=20)
    core = engine(target, make(kind, target), InTurns(pattern), num_pages=16, max_context=48, record_rounds=True)
    found = completions(core, prompts + prompts, greedy(16))
    assert [done.token_ids for done in found] == plain(target, prompts + prompts, 16)
    roomy = engine(target, make(kind, target), num_pages=64, record_rounds=True)
    whole = {t.anchor_position: t for done in completions(roomy, prompts[:1], greedy(16)) for t in done.stats.traces}
    for trace in found[0].stats.traces:
        other = whole.get(trace.anchor_position)
        if trace.drafted and other is not None:
            assert trace.drafted == other.drafted[: len(trace.drafted)]


class Noting:
    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def observe(self, rows: CommittedRows) -> None:
        self.seen.append(rows.kv_slots.tolist())


def rows(*slots: int) -> CommittedRows:
    import torch

    ids = torch.tensor(slots)
    return CommittedRows(features=ids[:, None].float(), positions=ids, kv_slots=ids, token_ids=ids, previous_slots=ids)


def test_rows_wait_together_and_the_last_of_a_slot_wins() -> None:
    drafter = Noting()
    upkeep = Upkeep(drafter)  # type: ignore[arg-type]
    upkeep.take(rows(3, 1), later=True)
    upkeep.take(rows(1, 7), later=True)
    assert (upkeep.num_waiting, drafter.seen) == (4, [])
    upkeep.catch_up()
    assert [sorted(seen) for seen in drafter.seen] == [[1, 3, 7]]
    assert upkeep.num_waiting == 0
    upkeep.take(rows(2))
    upkeep.catch_up()
    assert drafter.seen[1:] == [[2]]


def test_waiting_is_bounded() -> None:
    drafter = Noting()
    upkeep = Upkeep(drafter)  # type: ignore[arg-type]
    for first in range(0, 600, 60):
        upkeep.take(rows(*range(first, first + 60)), later=True)
    assert upkeep.num_waiting < 256
    assert sum(map(len, drafter.seen)) + upkeep.num_waiting == 600
