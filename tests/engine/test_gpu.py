"""The engine with target, drafter and pages on a CUDA device."""

from __future__ import annotations

import pytest

from dspark.core import SamplingParams

from .tiny import completions, engine, greedy, make_drafter, plain, random_prompts, tiny_target

pytestmark = pytest.mark.gpu

VOCAB = 8
PROMPTS = random_prompts(8, VOCAB, seed=3)


@pytest.mark.parametrize("kind", ["null", "ngram", "dflash", "vanilla", "rnn"])
def test_same_ids_as_on_the_cpu(kind: str) -> None:
    """float32 on both sides: the same weights, other kernels."""
    target = tiny_target(VOCAB, device="cuda")
    found = completions(engine(target, make_drafter(kind, target), num_pages=40), PROMPTS, greedy(24))
    assert [done.token_ids for done in found] == plain(tiny_target(VOCAB), PROMPTS, 24)


def test_seeds_options_and_preemption() -> None:
    target = tiny_target(VOCAB, device="cuda")
    drafter = make_drafter("vanilla", target)
    params = [SamplingParams(temperature=0.8, top_p=0.9, max_tokens=20, seed=i, logprobs=2) for i in range(8)]
    lone = [completions(engine(target, drafter), [p], o)[0].token_ids for p, o in zip(PROMPTS, params, strict=True)]
    tight = engine(target, drafter, num_pages=14, max_context=48)
    found = completions(tight, PROMPTS, params)
    assert [done.token_ids for done in found] == lone
    assert sum(done.stats.preemptions for done in found) > 0
