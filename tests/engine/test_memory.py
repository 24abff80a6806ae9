"""Pages, prefix cache, preemption: what is in memory is what a fresh run would put there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dspark.core import SamplingParams
from dspark.drafters import DSparkDrafter
from dspark.engine import EngineCore
from dspark.kvcache import slots

from .tiny import (
    PAGE,
    completions,
    drain,
    engine,
    greedy,
    make_drafter,
    plain,
    random_prompts,
    tiny_drafter,
    tiny_target,
    whole,
)

VOCAB = 8
PROMPTS = random_prompts(6, VOCAB, seed=21, longest=20)
TARGET_POOL, CONTEXT_POOL = "target", "context"


def pools(core: EngineCore) -> dict[str, torch.Tensor]:
    """Keys and values of target and drafter context, [layer, 2, heads, pages, page, size]."""
    found = {TARGET_POOL: core.target._backend._pool}  # type: ignore[attr-defined]
    if isinstance(core.drafter, DSparkDrafter):
        found[CONTEXT_POOL] = core.drafter._store.pages
    return found


def contents(core: EngineCore, index: int = 0) -> tuple[list[int], dict[str, torch.Tensor]]:
    """Computed tokens of a running sequence (its anchor after them) and copies of their rows in both pools."""
    sequence = core._roster.running[index]
    where = torch.tensor(slots(sequence.table, 0, sequence.num_computed, PAGE))
    rows = {name: pool.flatten(3, 4)[:, :, :, where].clone() for name, pool in pools(core).items()}
    return sequence.token_ids[: sequence.num_computed + 1], rows


def assert_as_fresh(core: EngineCore, index: int = 0) -> None:
    """What a running sequence has in memory is what one prefill of the same tokens writes."""
    ids, found = contents(core, index)
    fresh = engine(core.target, core.drafter)
    fresh.add_request(ids[:-1], SamplingParams(max_tokens=5))
    fresh.step()
    expected = contents(fresh)[1]
    assert found.keys() == expected.keys()
    for name in found:
        assert (found[name] - expected[name]).abs().max() <= 1e-5, name


def steps(core: EngineCore, count: int) -> None:
    for _ in range(count):
        core.step()
        core.check_integrity()


def test_after_rollback() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_drafter(target))
    core.add_request(PROMPTS[0], SamplingParams(temperature=1.0, max_tokens=40, seed=1))
    steps(core, 9)
    tally = core._roster.running[0].tally
    assert 0 < sum(tally.accepted_at) < sum(tally.verified_at)
    assert_as_fresh(core)


def test_after_a_prefix_hit() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_drafter(target))
    prompt = random_prompts(1, VOCAB, seed=5)[0] + [1, 2, 3, 4] * 4
    completions(core, [prompt], greedy(8))
    core.add_request([*prompt, 5, 6], SamplingParams(temperature=1.0, max_tokens=40, seed=2))
    steps(core, 5)
    assert core._roster.running[0].cached_tokens >= 16
    assert_as_fresh(core)


@pytest.mark.pitfall(21)
def test_after_preemption() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_drafter(target), num_pages=14, max_context=48, prefix_cache=False)
    for prompt in PROMPTS[:3]:
        core.add_request([*prompt, 1, 2, 3], SamplingParams(temperature=1.0, max_tokens=25, seed=3))
    for _ in range(200):
        core.step()
        resumed = [i for i, s in enumerate(core._roster.running) if s.preemptions and s.num_output > 3 and s.ready]
        if resumed:
            assert_as_fresh(core, resumed[0])
            return
    raise AssertionError("nothing was preempted and resumed")


@pytest.mark.pitfall(21)
def test_preemption_in_the_middle_changes_no_round() -> None:
    target = tiny_target(VOCAB)
    params = [SamplingParams(temperature=0.8, max_tokens=25, seed=i) for i in range(6)]
    calm = completions(engine(target, tiny_drafter(target), record_rounds=True), PROMPTS, params)
    tight = engine(target, tiny_drafter(target), num_pages=14, max_context=56, record_rounds=True)
    pressed = completions(tight, PROMPTS, params)
    assert sum(done.stats.preemptions for done in pressed) > 0
    for one, other in zip(calm, pressed, strict=True):
        assert one.token_ids == other.token_ids
        for a, b in zip(one.stats.traces, other.stats.traces, strict=True):
            assert (a.anchor_position, a.drafted, a.verified, a.accepted) == (
                b.anchor_position,
                b.drafted,
                b.verified,
                b.accepted,
            )
            assert a.confidence == pytest.approx(b.confidence, abs=1e-5)


@pytest.mark.parametrize("kind", ["null", "ngram", "vanilla"])
@pytest.mark.pitfall(21)
@pytest.mark.pitfall(22)
def test_warm_is_as_good_as_cold(kind: str) -> None:
    target = tiny_target(VOCAB)
    core = engine(target, make_drafter(kind, target))
    prompt = random_prompts(1, VOCAB, seed=7)[0] + [1, 2, 3] * 8
    cold = completions(core, [prompt], greedy(20))[0]
    name = core.add_request(prompt, greedy(20))
    first = core.step()
    warm_rows = core.last_step.rows
    warm = whole(first + drain(core)[name])
    assert cold.stats.cached_tokens == 0
    assert warm.stats.cached_tokens == (len(prompt) - 1) // PAGE * PAGE
    assert warm_rows == len(prompt) - warm.stats.cached_tokens
    assert warm.token_ids == cold.token_ids
    assert warm.stats.tau == cold.stats.tau


@pytest.mark.pitfall(23)
def test_a_hit_after_the_slots_served_another_prompt() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_drafter(target), num_pages=12, max_context=40, record_rounds=True)
    one, other = [1, 2, 3, 4] * 4 + [5], [7, 6, 5, 4] * 4 + [3]
    first = completions(core, [one], greedy(14))[0]
    completions(core, [other], greedy(20))  # takes over pages of the first
    second, third = (completions(core, [one], greedy(14))[0] for _ in range(2))
    assert third.stats.cached_tokens > 0
    assert first.token_ids == second.token_ids == third.token_ids
    drafted = [[trace.drafted for trace in done.stats.traces] for done in (first, second, third)]
    assert drafted[0] == drafted[1] == drafted[2]


@pytest.mark.parametrize("kind", ["null", "vanilla"])
@pytest.mark.pitfall(24)
def test_neighbouring_pages_are_not_touched(kind: str) -> None:
    """Context lengths around every multiple of the page size, canaries in all pages that are not the request's."""
    target = tiny_target(VOCAB)
    for length in range(PAGE - 1, 3 * PAGE + 2):
        core = engine(target, make_drafter(kind, target), num_pages=24)
        for pool in pools(core).values():
            with torch.inference_mode():
                pool.fill_(7.0)
        core.add_request([1 + i % 3 for i in range(length)], SamplingParams(max_tokens=12, seed=length))
        owned: set[int] = set()
        while core.has_unfinished():
            core._roster.make_room()
            owned.update(page for sequence in core._roster.running for page in sequence.table.pages)
            core.step()
            owned.update(page for sequence in core._roster.running for page in sequence.table.pages)
        needed = -(-(length + 12) // PAGE)
        assert len(owned) <= needed, "more pages than the text can fill"
        others = [page for page in range(24) if page not in owned]
        for pool in pools(core).values():
            assert bool((pool[:, :, :, others] == 7.0).all())


@pytest.mark.pitfall(25)
def test_two_that_share_a_prefix_in_one_step() -> None:
    target = tiny_target(VOCAB)
    prefix = [1, 2, 3, 4, 5, 6, 7] * 3
    prompts = [[*prefix, 1], [*prefix, 2], prefix, prefix]
    core = engine(target, tiny_drafter(target))
    found = completions(core, prompts, greedy(16))
    assert [done.token_ids for done in found] == plain(target, prompts, 16)
    assert all(done.stats.cached_tokens == 0 for done in found), "nothing was written yet when they were admitted"


@pytest.mark.pitfall(25)
def test_a_page_is_found_only_after_both_caches_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_drafter(target))
    events: list[str] = []
    observe, publish = core.drafter.observe, core._roster.pool.publish

    def watched(name: str, inner: Any) -> Any:
        return lambda *args: (events.append(name), inner(*args))[1]

    monkeypatch.setattr(core.drafter, "observe", watched("observe", observe))
    monkeypatch.setattr(core._roster.pool, "publish", watched("publish", publish))
    core.add_request([1] * 9, greedy(3))
    drain(core)
    assert events[::2] == ["observe"] * (len(events) // 2)
    assert events[1::2] == ["publish"] * (len(events) // 2)


@pytest.mark.parametrize("block", [1, 4, 7])
@pytest.mark.pitfall(9)
def test_copying_under_mixed_load(block: int) -> None:
    """Texts longer than any block inside, prompts to be copied beside prompts of all lengths, at every block size."""
    target = tiny_target(VOCAB, positions=320)
    lists = [([i % 8, (i * 3) % 8, 5, i // 2 % 8] * 40)[: 90 + 30 * i] for i in range(4)]
    prompts = [*lists, *random_prompts(3, VOCAB, seed=31, longest=60)]
    core = engine(target, make_drafter("ngram", target, block=block), num_pages=400, max_batch_rows=48)
    found = completions(core, prompts, greedy(24), check=False)
    assert [done.token_ids for done in found] == reference(tuple(map(tuple, prompts)))
    assert max(done.stats.tau for done in found) > 1


def reference(prompts: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    core = engine(tiny_target(VOCAB, positions=320), num_pages=400, max_batch_rows=400)
    return [completions(core, [prompt], greedy(24), check=False)[0].token_ids for prompt in prompts]
