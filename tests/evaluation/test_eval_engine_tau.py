"""Tokens per round of the engine, and the way it took through each answer."""

from __future__ import annotations

from itertools import accumulate

import pytest

from dspark.core import InputError
from dspark.evaluation import Arm, engine_tau

PROMPTS = [[1, 40, 41, 42], [1, 50, 51], [1, 60]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_walks_lead_from_the_prompt_to_the_end(fast: Arm, temperature: float) -> None:
    found = engine_tau(fast, PROMPTS, temperature=temperature, max_tokens=24, concurrency=2)
    for prompt, walk in zip(PROMPTS, found.walks, strict=True):
        assert walk.token_ids[: walk.num_prompt] == tuple(prompt)
        # the first token of the answer comes with the prompt's prefill and is the first anchor
        ends = list(accumulate(walk.committed, initial=walk.num_prompt + 1))
        assert list(walk.anchors) == [end - 1 for end in ends[:-1]]
        assert ends[-1] == len(walk.token_ids)
    rounds = sum(len(walk.anchors) for walk in found.walks)
    assert found.counts.rounds == rounds
    assert found.tau.value == pytest.approx(sum(sum(walk.committed) for walk in found.walks) / rounds)
    assert found.tau.low is not None


def test_the_same_seed_gives_the_same_answers(fast: Arm) -> None:
    one, other, third = (
        engine_tau(fast, PROMPTS, temperature=1.0, max_tokens=12, concurrency=width, seed=seed)
        for width, seed in ((1, 3), (3, 3), (3, 4))
    )
    assert one.walks == other.walks != third.walks


def test_plain_decoding_has_tau_one(plain: Arm) -> None:
    found = engine_tau(plain, PROMPTS, max_tokens=8)
    assert (found.tau.value, found.counts.conditional) == (1.0, ())


def test_options_are_checked(fast: Arm) -> None:
    with pytest.raises(InputError, match="max_tokens"):
        engine_tau(fast, PROMPTS, max_tokens=0)
