"""Measuring what steps cost, and where an engine's costs come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dspark import LLM
from dspark.core import InputError
from dspark.drafters import NgramDrafter
from dspark.engine import costs as costs_module
from dspark.engine.costs import find_costs, profile_identity
from dspark.engine.profile_plan import ProfilePlan, block_lengths, requests_of
from dspark.engine.profile_stand import ProfileStand
from dspark.engine.profiling import count_points, measure_costs
from dspark.scheduling import CostModel, LiveCosts, ProfileIdentity, StepCosts
from dspark.target import LoadedTarget

from .tiny import byte_tokenizer, completions, engine, greedy, make_drafter, plain, tiny_drafter, tiny_target

IDENTITY = ProfileIdentity(machine="m", model="t", dtype="float32", threads=1, backend="cpu")
SMALL = ProfilePlan(max_rows=12, max_requests=3, contexts=(5, 30), repeats=2, seconds=60.0)


@pytest.fixture
def loaded() -> LoadedTarget:
    return LoadedTarget(
        target=tiny_target(vocab=300), tokenizer=byte_tokenizer(), name="tiny", source="tests", notes=()
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[CostModel]:
    """Lets engines really measure, a little, into a cache of the test's own; all that was measured."""
    found: list[CostModel] = []

    def measure(target: Any, drafter: Any, identity: ProfileIdentity, plan: Any = None, **kw: Any) -> CostModel:
        found.append(measure_costs(target, drafter, identity, SMALL, **kw))
        return found[-1]

    monkeypatch.setattr(costs_module, "measure_costs", measure)
    monkeypatch.setattr(costs_module, "check_profile", lambda model: ())  # this machine may be busy
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path))
    return found


@pytest.mark.parametrize("kind", ["vanilla", "ngram", "null"])
def test_every_point_is_measured(kind: str) -> None:
    target = tiny_target()
    told: list[int] = []
    drafter = make_drafter(kind, target)
    found = measure_costs(target, drafter, IDENTITY, SMALL, tell=lambda done, note: told.append(done))
    assert found.verify.widths == tuple(range(1, 13))
    assert found.verify.depths == (5, 30)
    assert min(map(min, found.verify.seconds)) > 0
    assert told == list(range(1, count_points(drafter, SMALL) + 1))
    if kind == "null":
        assert found.draft is None
    else:
        assert found.draft is not None
        assert (found.draft.widths, found.draft.depths) == ((1, 2, 3), tuple(block_lengths(5)))
    assert CostModel.from_json(found.to_json()) == found


@pytest.mark.pitfall(27)
def test_the_asked_width_really_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted in the batch that the target got."""
    target = tiny_target()
    forward, rows = target.forward, []
    monkeypatch.setattr(target, "forward", lambda batch: (rows.append(batch.num_rows), forward(batch))[1])
    stand = ProfileStand(target, tiny_drafter(target), SMALL)
    for width in (1, 2, 6, 7, 11, 12):
        seconds, ran = stand.verify(width, 30)
        assert (rows.pop(), ran) == (width, width)
        assert seconds > 0
    assert stand.draft(3, 4)[1] == 3
    monkeypatch.setattr(ProfileStand, "verify", lambda self, width, context: (0.01, 4))
    with pytest.raises(InputError, match="asked for width 1, but 4 ran"):
        measure_costs(target, tiny_drafter(target), IDENTITY, SMALL)


def test_more_rows_than_drafts_are_a_prompt() -> None:
    target = tiny_target()
    stand = ProfileStand(target, make_drafter("null", target), ProfilePlan(max_rows=40, max_requests=2, contexts=(9,)))
    assert stand.verify(40, stand.contexts[0])[1] == 40


def test_time_is_bounded_but_narrow_steps_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target()
    plan = ProfilePlan(max_rows=64, max_requests=8, contexts=(8,), seconds=0.0)
    found = measure_costs(target, tiny_drafter(target), IDENTITY, plan)
    assert found.verify.widths == (1, 2, 3, 4)
    assert found.draft is not None
    assert found.draft.widths == (1, 2, 3, 4)


def test_an_engine_made_afterwards_is_not_disturbed() -> None:
    target = tiny_target()
    drafter = tiny_drafter(target)
    measure_costs(target, drafter, IDENTITY, SMALL)
    prompts = [[1, 2, 3], [9, 8]]
    found = completions(engine(target, drafter), prompts, greedy(20))
    assert [done.token_ids for done in found] == plain(target, prompts, 20)


def test_what_is_measured() -> None:
    plan = ProfilePlan()
    widths = plan.row_widths()
    assert widths[:20] == [*range(1, 17), 20, 24, 28, 32]
    assert widths[-5:] == [256, 320, 384, 448, 512]
    assert plan.request_widths() == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert (block_lengths(7), block_lengths(1), block_lengths(0)) == ([3, 5, 7], [1], [])
    shared = [requests_of(rows, 7, 64) for rows in widths]
    assert shared == sorted(shared)
    assert shared[:8] == [1] * 8
    assert all(n <= rows <= n * 8 for n, rows in zip(shared, widths, strict=True))
    with pytest.raises(InputError, match="at least one row"):
        ProfilePlan(max_rows=0)


@pytest.mark.pitfall(26)
def test_an_engine_profiles_itself_keeps_it_and_says_so(
    loaded: LoadedTarget, measured: list[CostModel], tmp_path: Path
) -> None:
    drafter = tiny_drafter(loaded.target)
    first = LLM(loaded, drafter=drafter, policy="async", max_requests=3)
    assert len(measured) == 1
    kept = list((tmp_path / "profiles").glob("*.json"))
    assert len(kept) == 1
    (said,) = [note for note in first.notes if note.startswith("costs of steps")]
    assert str(kept[0]) in said
    assert isinstance(first.costs, LiveCosts)
    assert first.costs.model.identity == profile_identity(loaded, drafter)
    assert first.generate("the", greedy(12))[0].outputs[0].token_ids
    again = LLM(loaded, drafter=drafter, policy="sync", max_requests=3)
    assert len(measured) == 1
    assert any("profiled on this machine before" in note for note in again.notes)


@pytest.mark.pitfall(26)
@pytest.mark.parametrize("policy", ["fixed", "fixed:2", "threshold:0.5"])
def test_nothing_is_measured_for_policies_that_need_no_costs(
    policy: str, loaded: LoadedTarget, measured: list[CostModel]
) -> None:
    assert LLM(loaded, drafter=tiny_drafter(loaded.target), policy=policy).costs is None
    assert not measured


@pytest.mark.pitfall(27)
def test_another_identity_is_another_profile(
    loaded: LoadedTarget, measured: list[CostModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine, model, drafter, number format, threads, backend, versions."""
    find_costs("auto", loaded, tiny_drafter(loaded.target))
    find_costs("auto", loaded, NgramDrafter())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    find_costs("auto", loaded, NgramDrafter())
    monkeypatch.setattr(costs_module, "version", lambda name: "0.0")
    find_costs("auto", loaded, NgramDrafter())
    identity = measured[-1].identity
    assert len({model.identity.digest() for model in measured}) == 4
    assert (identity.threads, identity.dtype, set(identity.versions)) == (
        99,
        "float32",
        {"dspark", "torch", "transformers"},
    )
    assert identity.machine
    assert identity.backend.startswith("cpu")


def test_a_doubtful_profile_is_used_but_not_kept(
    loaded: LoadedTarget, measured: list[CostModel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(costs_module, "check_profile", lambda model: ("time fell",))
    found = find_costs("auto", loaded, NgramDrafter())
    assert "not kept, for there is a doubt: time fell" in found.notes[0]
    assert not list(tmp_path.rglob("*.json"))


def test_costs_from_a_file_or_by_hand(loaded: LoadedTarget, measured: list[CostModel], tmp_path: Path) -> None:
    model = measure_costs(loaded.target, NgramDrafter(), IDENTITY, SMALL)
    (tmp_path / "mine.json").write_text(model.to_json())
    found = find_costs(tmp_path / "mine.json", loaded, NgramDrafter())
    assert isinstance(found.costs, LiveCosts)
    assert found.costs.model == model
    assert "measured for something else: machine 'm'" in found.notes[1]
    by_hand: StepCosts = LiveCosts(model)
    assert find_costs(by_hand, loaded, NgramDrafter()).costs is by_hand
    assert LLM(loaded, drafter="ngram", policy="async", costs=by_hand).costs is by_hand
    assert not measured
    with pytest.raises(InputError, match=r"there is no profile 'gone\.json'; expected 'auto'"):
        LLM("never loaded", costs="gone.json")


def test_tests_get_made_up_costs(profiler: Callable[..., Any]) -> None:
    assert profiler is measure_costs
    assert costs_module.measure_costs is not measure_costs
