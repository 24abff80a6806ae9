"""Greedy answers are those of plain decoding, whatever is drafted and however the work is cut up."""

from __future__ import annotations

from typing import Any

import pytest

from dspark.core import SamplingParams
from dspark.scheduling import ConfidenceThreshold, FixedLength

from .tiny import alone, completions, engine, greedy, make_drafter, plain, random_prompts, tiny_target

KINDS = ["ngram", "dflash", "vanilla", "gated", "rnn"]


PROMPTS = random_prompts(8, 8, seed=3)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.pitfall(30)
def test_same_ids_as_plain_decoding(kind: str, batch: int) -> None:
    target = tiny_target(8)
    core = engine(target, make_drafter(kind, target), max_requests=batch)
    found = completions(core, PROMPTS, greedy(24))
    assert [done.token_ids for done in found] == plain(target, PROMPTS, 24)
    assert sum(done.stats.accepted for done in found) > 0, "nothing was accepted: the test shows nothing"
    assert sum(done.stats.verified - done.stats.accepted for done in found) > 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_rows": 8},
        {"num_pages": 13, "max_context": 48},
        {"num_pages": 12, "max_context": 48, "prefix_cache": False},
        {"max_requests": 2, "max_batch_rows": 3},
    ],
    ids=["small chunks", "few pages", "few pages, no cache", "three rows"],
)
@pytest.mark.parametrize("kind", ["null", "ngram", "vanilla"])
def test_same_ids_under_pressure(kind: str, options: dict[str, Any]) -> None:
    target = tiny_target(8)
    core = engine(target, make_drafter(kind, target), **options)
    found = completions(core, PROMPTS, greedy(24))
    assert [done.token_ids for done in found] == plain(target, PROMPTS, 24)
    if "num_pages" in options:
        assert sum(done.stats.preemptions for done in found) > 0, "the pool was not small enough"


@pytest.mark.parametrize("policy", [FixedLength(0), FixedLength(2), ConfidenceThreshold(0.5)], ids=lambda p: p.name)
def test_same_ids_with_every_policy(policy: Any) -> None:
    target = tiny_target(8)
    found = completions(engine(target, make_drafter("vanilla", target), policy), PROMPTS[:4], greedy(24))
    assert [done.token_ids for done in found] == plain(target, PROMPTS[:4], 24)
    longest = max(len(done.stats.verified_at) for done in found)
    assert longest == (policy.k if isinstance(policy, FixedLength) else 5)


def test_plain_decoding_is_the_model_itself() -> None:
    """Against prefills of the whole text, one per token."""
    target, prompt = tiny_target(8), PROMPTS[0]
    expected: list[int] = []
    for _ in range(10):
        expected.append(alone(target, prompt + expected, greedy(1)).token_ids[0])
    assert list(alone(target, prompt, greedy(10)).token_ids) == expected


@pytest.mark.pitfall(10)
def test_repeating_a_prompt_changes_nothing() -> None:
    target = tiny_target(8)
    core = engine(target, make_drafter("vanilla", target), num_pages=24)
    seen = [completions(core, PROMPTS[:1], greedy(12))[0] for _ in range(20)]
    assert len({done.token_ids for done in seen}) == 1
    assert len({done.stats.tau for done in seen}) == 1


def test_long_prompts_do_not_starve_short_ones() -> None:
    target = tiny_target(64)
    core = engine(target, max_batch_rows=8)
    first = core.add_request(list(range(60)), greedy(2))
    second = core.add_request([1, 2, 3], greedy(2))
    order = []
    while core.has_unfinished():
        order.extend(output.request_id for output in core.step() if output.completion)
    assert order == [second, first]


def test_step_statistics_add_up() -> None:
    target = tiny_target(8)
    core = engine(target, make_drafter("vanilla", target))
    for prompt in random_prompts(3, 8, seed=6):
        core.add_request(prompt, SamplingParams(temperature=1.0, max_tokens=9))
    committed = 0
    while core.has_unfinished():
        core.step()
        step = core.last_step
        assert step.rows == step.prefill_rows + len(step.verify_lens) + sum(step.verify_lens)
        assert min(step.draft_seconds, step.forward_seconds, step.sample_seconds, step.host_seconds) >= 0
        committed += step.committed
    assert committed == 27
