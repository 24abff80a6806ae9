"""Sampling options do with speculation exactly what they do without; seeds and log probabilities too."""

from __future__ import annotations

from typing import Any

import pytest

from dspark.core import SamplingParams

from .tiny import Oracle, alone, completions, engine, greedy, make_drafter, plain, random_prompts, tiny_target

VOCAB = 16
PROMPTS = random_prompts(4, VOCAB, seed=11, longest=12)
COUNT = 20

OPTIONS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.7},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.9},
    "all penalties": {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.5},
    "bias": {"logit_bias": {3: 6.0, 5: -100.0}},
    "min_tokens": {"stop_token_ids": tuple(range(0, VOCAB, 2)), "min_tokens": 9},
    "min_p": {"min_p": 0.3},
    "filters": {"top_k": 3, "top_p": 0.8},
}


@pytest.mark.parametrize("kind", ["oracle", "ngram", "vanilla"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.pitfall(16)
@pytest.mark.pitfall(17)
@pytest.mark.pitfall(18)
def test_equal_to_plain_decoding(name: str, kind: str) -> None:
    target, params = tiny_target(VOCAB), greedy(COUNT, **OPTIONS[name])
    expected = [alone(target, prompt, params) for prompt in PROMPTS]
    if kind == "oracle":  # whole blocks accepted but for a rejected draft here and there
        texts = [prompt + list(done.token_ids) for prompt, done in zip(PROMPTS, expected, strict=True)]
        drafter: Any = Oracle(texts, VOCAB, wrong_at=range(0, 60, 7))
    else:
        drafter = make_drafter(kind, target)
    found = completions(engine(target, drafter), PROMPTS, params)
    for done, reference in zip(found, expected, strict=True):
        assert done.token_ids == reference.token_ids
        assert (done.finish_reason, done.stop_reason) == (reference.finish_reason, reference.stop_reason)
    if kind == "oracle":
        assert sum(done.stats.accepted for done in found) > sum(done.stats.rounds for done in found) / 2


@pytest.mark.parametrize("name", ["repetition", "presence", "frequency", "bias"])
@pytest.mark.pitfall(17)
def test_options_take_effect(name: str) -> None:
    target = tiny_target(VOCAB)
    found = completions(engine(target, make_drafter("ngram", target)), PROMPTS, greedy(COUNT, **OPTIONS[name]))
    assert [done.token_ids for done in found] != plain(target, PROMPTS, COUNT)
    if name == "bias":
        assert not any(5 in done.token_ids for done in found)


@pytest.mark.parametrize("kind", ["null", "ngram", "dflash", "vanilla"])
@pytest.mark.pitfall(19)
def test_a_seed_is_a_seed_alone_and_in_a_batch(kind: str) -> None:
    target = tiny_target(VOCAB)
    drafter = make_drafter(kind, target)
    seeded = [SamplingParams(temperature=0.9, top_p=0.95, max_tokens=COUNT, seed=100 + i) for i in range(4)]
    lone = [
        completions(engine(target, drafter), [prompt], params)[0].token_ids
        for prompt, params in zip(PROMPTS, seeded, strict=True)
    ]
    assert len(set(lone)) == 4
    unseeded = [SamplingParams(temperature=1.2, max_tokens=11), greedy(7), SamplingParams(max_tokens=30)]
    neighbours = random_prompts(3, VOCAB, seed=12)
    mixed = engine(target, drafter, max_requests=5, seed=99)
    found = completions(mixed, [*neighbours, *PROMPTS], [*unseeded, *seeded])
    assert [done.token_ids for done in found[3:]] == lone
    squeezed = engine(target, drafter, num_pages=13, max_context=48, seed=98)
    again = completions(squeezed, [*PROMPTS, *neighbours], [*seeded, *unseeded])
    assert [done.token_ids for done in again[:4]] == lone
    assert sum(done.stats.preemptions for done in again) > 0


@pytest.mark.pitfall(19)
def test_the_engine_seed_makes_whole_runs_repeatable() -> None:
    target, params = tiny_target(VOCAB), SamplingParams(temperature=1.0, max_tokens=12)
    runs = [[done.token_ids for done in completions(engine(target, seed=seed), PROMPTS, params)] for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("kind", ["ngram", "vanilla"])
@pytest.mark.pitfall(20)
def test_log_probabilities_are_those_of_plain_decoding(kind: str) -> None:
    target, params = tiny_target(VOCAB), greedy(COUNT, logprobs=3, repetition_penalty=1.3)
    expected = [alone(target, prompt, params).logprobs for prompt in PROMPTS]
    found = [done.logprobs for done in completions(engine(target, make_drafter(kind, target)), PROMPTS, params)]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours is not None
        assert theirs is not None
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.token == other.token
            assert mine.logprob == pytest.approx(other.logprob, abs=1e-3)
            assert [token for token, _ in mine.top] == [token for token, _ in other.top]
            assert [value for _, value in mine.top] == pytest.approx([value for _, value in other.top], abs=1e-3)


@pytest.mark.pitfall(4)
def test_filters_hold_for_every_emitted_token() -> None:
    """With top_k = 1 a sampled answer is the greedy one, whatever the drafter draws."""
    target = tiny_target(VOCAB)
    params = SamplingParams(temperature=1.5, top_k=1, max_tokens=COUNT)
    for kind in ("ngram", "vanilla"):
        found = completions(engine(target, make_drafter(kind, target)), PROMPTS, params)
        assert [done.token_ids for done in found] == plain(target, PROMPTS, COUNT)


def test_mixed_options_in_one_batch() -> None:
    target = tiny_target(VOCAB)
    drafter = make_drafter("vanilla", target)
    params = [greedy(COUNT), greedy(COUNT, logprobs=1), greedy(COUNT, presence_penalty=1.0)]
    params.append(SamplingParams(temperature=0.7, min_p=0.1, seed=4, max_tokens=COUNT))
    lone = [
        completions(engine(target, drafter), [prompt], option)[0]
        for prompt, option in zip(PROMPTS, params, strict=True)
    ]
    together = completions(engine(target, drafter), PROMPTS, params)
    assert [done.token_ids for done in together] == [done.token_ids for done in lone]
    assert [done.logprobs is None for done in together] == [True, False, True, True]
