"""Eagle3 in the engine: the same answers, the same memory, the target's own law."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dspark.core import SamplingParams
from dspark.drafters import Eagle3Drafter
from dspark.drafters.eagle3 import Eagle3Config, Eagle3Model
from dspark.engine import EngineCore
from dspark.kvcache import slots
from dspark.scheduling import FixedLength
from dspark.target import PackedTarget

from .test_law import BLOCK, VOCAB, p_value, sample
from .tiny import PAGE, alone, completions, engine, greedy, plain, random_prompts, tiny_target

PROMPTS = random_prompts(8, VOCAB, seed=3)


def tiny_eagle(
    target: PackedTarget, *, block: int = 5, seed: int = 1, ids: torch.Tensor | None = None
) -> Eagle3Drafter:
    """A random Eagle3 drafter; it agrees with the target by chance only."""
    facts = target.facts
    config = Eagle3Config(
        hidden_size=facts.hidden_size,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=facts.vocab_size,
        target_layer_ids=(-1, 0),
        num_target_layers=facts.num_layers,
        ttt_length=block,
        draft_vocab_size=None if ids is None else len(ids),
    )
    torch.manual_seed(seed)
    model = Eagle3Model(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            middle = 1.0 if name.endswith("norm.weight") else 0.0
            weight.normal_(middle, 0.3 if weight.ndim < 2 else weight.shape[1] ** -0.5)
    return Eagle3Drafter(model, target, draft_to_target=ids)


def test_draws_at_many_positions() -> None:
    """The drafter of these tests is no constant: what it drafts depends on the text."""
    target = tiny_target(VOCAB)
    found = completions(engine(target, tiny_eagle(target), record_rounds=True), PROMPTS, greedy(24))
    drafted = [trace.drafted for done in found for trace in done.stats.traces]
    assert len(set(drafted)) > len(drafted) // 4


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.pitfall(30)
def test_same_ids_as_plain_decoding(batch: int) -> None:
    target = tiny_target(VOCAB)
    found = completions(engine(target, tiny_eagle(target), max_requests=batch), PROMPTS, greedy(24))
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
def test_same_ids_under_pressure(options: dict[str, Any]) -> None:
    target = tiny_target(VOCAB)
    found = completions(engine(target, tiny_eagle(target), **options), PROMPTS, greedy(24))
    assert [done.token_ids for done in found] == plain(target, PROMPTS, 24)
    if "num_pages" in options:
        assert sum(done.stats.preemptions for done in found) > 0, "the pool was not small enough"


def test_every_remaining_length() -> None:
    """The window never runs past the model's last position."""
    target = tiny_target(VOCAB, positions=32)
    drafter = tiny_eagle(target)
    for length in range(24, 32):
        prompt = [1 + i % 5 for i in range(length)]
        done = alone(target, prompt, greedy(20), drafter, num_pages=16)
        assert done.token_ids == plain(target, [prompt], 20)[0]


def contents(core: EngineCore, index: int = 0) -> tuple[list[int], list[torch.Tensor]]:
    """Computed tokens of a running sequence (its anchor after them), and what the drafter keeps of their rows."""
    drafter = core.drafter
    assert isinstance(drafter, Eagle3Drafter)
    sequence = core._roster.running[index]
    where = torch.tensor(slots(sequence.table, 0, sequence.num_computed, PAGE))
    kept = drafter._store.pages.flatten(3, 4)[:, :, :, where[1:]].clone(), drafter._features[where].clone()
    return sequence.token_ids[: sequence.num_computed + 1], list(kept)


def fresh_contents(target: PackedTarget, drafter: Eagle3Drafter, ids: list[int]) -> list[torch.Tensor]:
    """What one prefill of the tokens before the last of ``ids`` writes."""
    fresh = engine(target, drafter)
    fresh.add_request(ids[:-1], SamplingParams(max_tokens=5))
    fresh.step()
    return contents(fresh)[1]


def assert_kept(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def assert_as_fresh(core: EngineCore, index: int = 0) -> None:
    """What a running sequence has in memory is what one prefill of the same tokens writes."""
    assert isinstance(core.drafter, Eagle3Drafter)
    ids, found = contents(core, index)
    assert_kept(found, fresh_contents(core.target, core.drafter, ids))


def test_after_rollback() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_eagle(target))
    core.add_request(PROMPTS[0], SamplingParams(temperature=1.0, max_tokens=40, seed=1))
    for _ in range(9):
        core.step()
        core.check_integrity()
    tally = core._roster.running[0].tally
    assert 0 < sum(tally.accepted_at) < sum(tally.verified_at)
    assert_as_fresh(core)


@pytest.mark.pitfall(21)
@pytest.mark.pitfall(22)
def test_after_prefix_hits_that_go_on_differently() -> None:
    """Texts that share full pages and differ in the very next token, in one engine; each is as if it were alone."""
    target = tiny_target(VOCAB)
    drafter = tiny_eagle(target)
    core = engine(target, drafter)
    completions(core, [[1, 2, 3, 4] * 4 + [7, 7]], greedy(8))
    found = []
    for following in (5, 6, 7):
        params = SamplingParams(temperature=1.0, max_tokens=40, seed=2)
        name = core.add_request([1, 2, 3, 4] * 4 + [following, 6], params)
        for _ in range(6):
            core.step()
        assert core._roster.running[0].cached_tokens == 16
        found.append(contents(core))
        core.abort(name)
    for ids, kept in found:
        assert_kept(kept, fresh_contents(target, drafter, ids))


@pytest.mark.pitfall(21)
def test_after_preemption() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_eagle(target), num_pages=14, max_context=48, prefix_cache=False)
    for prompt in PROMPTS[:3]:
        core.add_request([*prompt[:18], 1, 2, 3], SamplingParams(temperature=1.0, max_tokens=25, seed=3))
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
    calm = completions(engine(target, tiny_eagle(target), record_rounds=True), PROMPTS[:6], params)
    tight = engine(target, tiny_eagle(target), num_pages=14, max_context=56, record_rounds=True)
    pressed = completions(tight, PROMPTS[:6], params)
    assert sum(done.stats.preemptions for done in pressed) > 0
    for one, other in zip(calm, pressed, strict=True):
        assert one.token_ids == other.token_ids
        assert [t.drafted for t in one.stats.traces] == [t.drafted for t in other.stats.traces]


def test_a_step_that_fails_after_observing_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repeated step reads the feature before its first row, which the failed one must have left alone."""
    target = tiny_target(VOCAB)
    params = SamplingParams(temperature=1.0, max_tokens=30, seed=4)
    calm = alone(target, PROMPTS[1], params, tiny_eagle(target), record_rounds=True)
    core = engine(target, tiny_eagle(target), record_rounds=True)
    observe, calls = core.drafter.observe, iter(range(10_000))

    def shaky(rows: Any) -> None:
        observe(rows)
        if next(calls) % 2:
            raise OSError("unplugged")

    monkeypatch.setattr(core.drafter, "observe", shaky)
    core.add_request(PROMPTS[1], params)
    completion = None
    while core.has_unfinished():
        try:
            outputs = core.step()
        except OSError:
            continue
        completion = outputs[-1].completion if outputs else completion
    assert completion is not None
    assert completion.token_ids == calm.token_ids
    assert [t.drafted for t in completion.stats.traces] == [t.drafted for t in calm.stats.traces]


@pytest.mark.parametrize(
    ("temperature", "policy", "ids"),
    [(1.0, None, None), (1.6, None, [0, 3, 4, 6]), (0.4, FixedLength(2), None)],
    ids=["plain", "hot, reduced vocabulary", "cold, short"],
)
@pytest.mark.pitfall(1)
@pytest.mark.pitfall(2)
@pytest.mark.pitfall(5)
def test_samples_follow_the_target(temperature: float, policy: FixedLength | None, ids: list[int] | None) -> None:
    drafter = tiny_eagle(tiny_target(VOCAB), block=BLOCK, ids=None if ids is None else torch.tensor(ids))
    answers = sample(drafter, policy, temperature)
    assert p_value(answers, temperature) > 1e-3
    assert 0 < sum(answer.stats.accepted for answer in answers) < sum(answer.stats.verified for answer in answers)
