"""Where an answer ends: at, before and beyond every limit, at every place of a block."""

from __future__ import annotations

from functools import cache

import pytest

from dspark.core import FinishReason, SamplingParams, TokenOrigin
from dspark.drafters import Drafter
from dspark.engine import CompletionOutput
from dspark.target import PackedTarget

from .tiny import Oracle, alone, byte_tokenizer, completions, engine, greedy, make_drafter, tiny_target

BLOCK = 5
VOCAB = 262
PROMPT = [72, 105, 33]


@cache
def chosen() -> tuple[PackedTarget, tuple[int, ...]]:
    """A model whose greedy answer has no token twice, as far as it goes, and that answer."""
    for seed in range(50):
        target = tiny_target(VOCAB, seed=seed)
        ids = alone(target, PROMPT, greedy(14)).token_ids
        if len(set(ids)) == len(ids):
            return target, ids
    raise AssertionError("no suitable model")


def answer() -> tuple[int, ...]:
    return chosen()[1]


def run(drafter: Drafter | None, params: SamplingParams, **options: object) -> CompletionOutput:
    core = engine(chosen()[0], drafter, tokenizer=byte_tokenizer(), **options)
    return completions(core, [PROMPT], params)[0]


def oracle(wrong_at: tuple[int, ...] = ()) -> Oracle:
    return Oracle([[*PROMPT, *answer(), 1, 2, 3, 4, 5]], VOCAB, BLOCK, [len(PROMPT) + place for place in wrong_at])


def facts(done: CompletionOutput) -> tuple[object, ...]:
    return done.token_ids, done.text, done.finish_reason, done.stop_reason


@pytest.mark.parametrize("offset", range(10))
@pytest.mark.pitfall(11)
def test_a_stop_token_inside_a_block(offset: int) -> None:
    stop = answer()[offset]
    for limit in (offset, offset + 1, offset + 2, 14):
        params = greedy(max(limit, 1), stop_token_ids=(stop,))
        found, plain = run(oracle(), params), run(None, params)
        assert facts(found) == facts(plain)
        reached = max(limit, 1) > offset
        assert found.finish_reason == (FinishReason.STOP if reached else FinishReason.LENGTH)
        assert found.token_ids == answer()[: min(offset + 1, max(limit, 1))]
        assert found.stop_reason == (stop if reached else None)


@pytest.mark.pitfall(11)
def test_the_case_of_the_report() -> None:
    """Output ids [10, 11, STOP, 20, ...] with max_tokens 5: nothing after STOP, in ids or text."""
    stop = answer()[2]
    done = run(oracle(), greedy(5, stop_token_ids=(stop,)))
    assert done.token_ids == answer()[:3]
    assert done.text == byte_tokenizer().decode(answer()[:2])
    assert done.stats.committed == 2
    assert done.origins == (TokenOrigin.PLAIN, TokenOrigin.DRAFT, TokenOrigin.DRAFT)


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.pitfall(12)
def test_end_of_text_accepted_inside_a_block(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = byte_tokenizer()
    core = engine(chosen()[0], oracle(), tokenizer=tokenizer)
    monkeypatch.setattr(core._intake, "eos_ids", frozenset(answer()[offset : offset + 1]))
    ended, ignored = completions(core, [PROMPT] * 2, [greedy(12), greedy(12, ignore_eos=True)])
    assert (ended.token_ids, ended.finish_reason, ended.stop_reason) == (answer()[: offset + 1], "stop", None)
    assert (ignored.token_ids, ignored.finish_reason) == (answer()[:12], "length")


@pytest.mark.parametrize("place", range(1, 6))
@pytest.mark.pitfall(13)
def test_a_rejected_stop_token_ends_nothing(place: int) -> None:
    wrong = (answer()[place] + 1) % VOCAB
    assert wrong not in answer()
    done = run(oracle(wrong_at=(place,)), greedy(10, stop_token_ids=(wrong,)))
    assert (done.token_ids, done.finish_reason) == (answer()[:10], FinishReason.LENGTH)
    assert TokenOrigin.CORRECTION in done.origins


@pytest.mark.parametrize("start", range(1, 8))
@pytest.mark.parametrize("length", [1, 2, 4])
@pytest.mark.pitfall(11)
def test_stop_strings_over_the_tokens_of_a_block(start: int, length: int) -> None:
    text = byte_tokenizer().decode(answer())
    params = greedy(14, stop=(text[start : start + length],))
    found, plain = run(oracle(), params), run(None, params)
    assert facts(found) == facts(plain)
    assert found.finish_reason is FinishReason.STOP
    assert params.stop[0] not in found.text


@pytest.mark.parametrize("limit", range(1, BLOCK + 4))
@pytest.mark.parametrize("wrong_at", [(), (3,)])
@pytest.mark.pitfall(14)
def test_as_many_tokens_as_counted(limit: int, wrong_at: tuple[int, ...]) -> None:
    done = run(oracle(wrong_at), greedy(limit, logprobs=2))
    assert done.token_ids == answer()[:limit]
    assert done.logprobs is not None
    assert len(done.logprobs) == len(done.origins) == limit
    assert done.stats.committed == limit - 1
    assert done.stats.committed == done.stats.rounds + done.stats.accepted


@pytest.mark.parametrize("kind", ["ngram", "vanilla"])
@pytest.mark.pitfall(15)
def test_the_end_of_the_context(kind: str) -> None:
    """Every remaining length 0 .. block + 1, against positions that the model really has."""
    positions = 24
    target = tiny_target(8, positions=positions)
    drafter = make_drafter(kind, target)
    for left in range(1, BLOCK + 3):
        prompt = [(3 * i) % 8 for i in range(positions - left)]
        params = SamplingParams(temperature=0.0, max_tokens=None)
        found = completions(engine(target, drafter), [prompt], params)[0]
        assert found.finish_reason is FinishReason.LENGTH
        assert len(found.token_ids) == left
        assert found.token_ids == alone(target, prompt, params).token_ids


@pytest.mark.pitfall(15)
def test_no_row_is_past_the_last_position(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target(8, positions=24)
    seen: list[int] = []
    forward = target.forward
    monkeypatch.setattr(target, "forward", lambda batch: (seen.append(int(batch.positions.max())), forward(batch))[1])
    for start in range(10, 23):
        completions(
            engine(target, make_drafter("vanilla", target)), [[1] * start], SamplingParams(max_tokens=None, seed=start)
        )
    assert max(seen) <= 23


def test_min_tokens_keeps_the_end_away() -> None:
    stop = answer()[1]
    params = greedy(10, stop_token_ids=(stop,), min_tokens=6)
    found, plain = run(make_drafter("ngram", chosen()[0]), params), run(None, params)
    assert facts(found) == facts(plain)
    assert stop not in found.token_ids[:6]
