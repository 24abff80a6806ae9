"""Requests: several answers, aborts, names, and everything a user can get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dspark.core import DsparkError, FinishReason, InputError, SamplingParams
from dspark.drafters import NgramDrafter
from dspark.engine import EngineCore, EngineOptions
from dspark.engine.intake import sibling_seed
from dspark.scheduling import ConfidenceThreshold

from .tiny import byte_tokenizer, completions, drain, engine, greedy, make_drafter, tiny_drafter, tiny_target, whole

VOCAB = 8


def answers(core: EngineCore, prompt: list[int], params: SamplingParams) -> list[tuple[int, ...]]:
    name = core.add_request(prompt, params)
    outputs = drain(core)[name]
    return [whole([o for o in outputs if o.index == index]).token_ids for index in range(params.n)]


def test_several_answers_share_the_prompt() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_drafter(target))
    prompt = [1, 2, 3, 4, 5] * 4
    core.add_request(prompt, SamplingParams(n=4, max_tokens=10, seed=3))
    rows = 0
    done = []
    while core.has_unfinished():
        done += [output.completion for output in core.step() if output.completion]
        rows += core.last_step.prefill_rows
        core.check_integrity()
    assert rows == 20 + 3 * 4, "the prompt was computed more than once"
    assert sorted(completion.index for completion in done) == [0, 1, 2, 3]
    assert len({completion.token_ids for completion in done}) == 4
    assert sorted(completion.stats.cached_tokens for completion in done) == [0, 16, 16, 16]


def test_the_first_of_several_is_the_only_one_of_one() -> None:
    target = tiny_target(VOCAB)
    one = answers(engine(target), [1, 2, 3], SamplingParams(n=1, max_tokens=10, seed=3))
    three = answers(engine(target), [1, 2, 3], SamplingParams(n=3, max_tokens=10, seed=3))
    assert three[0] == one[0]
    second = answers(engine(target), [1, 2, 3], SamplingParams(max_tokens=10, seed=sibling_seed(3, 1)))
    assert three[1] == second[0]


def test_several_answers_without_a_prefix_cache() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, prefix_cache=False, max_requests=2)
    assert len(answers(core, [1, 2, 3] * 5, greedy(5, n=3))) == 3


@pytest.mark.parametrize("after", [0, 1, 3])
def test_abort(after: int) -> None:
    target = tiny_target(VOCAB)
    core = engine(target, tiny_drafter(target), max_requests=2)
    kept = core.add_request([4, 4, 4], greedy(12))
    gone = core.add_request([1, 2, 3] * 3, SamplingParams(max_tokens=30, n=3))
    outputs = [output for _ in range(after) for output in core.step()]
    ended = core.abort(gone)
    core.check_integrity()
    assert [output.completion.finish_reason for output in ended if output.completion] == [FinishReason.ABORT] * 3
    assert core.abort(gone) == []
    assert core.abort("unknown") == []
    outputs += drain(core)[kept]
    assert whole([o for o in outputs if o.request_id == kept]).token_ids == answers(core, [4, 4, 4], greedy(12))[0]
    assert core.pool_stats().used == 0


def test_an_aborted_answer_keeps_its_text() -> None:
    target = tiny_target(262)
    core = engine(target, tokenizer=byte_tokenizer())
    name = core.add_request([72, 105], greedy(30, stop=("never there",)))
    outputs = [output for _ in range(6) for output in core.step()]
    done = whole(outputs + core.abort(name))
    assert len(done.token_ids) == 6
    assert done.text == byte_tokenizer().decode(done.token_ids)


def test_names_are_unique_among_the_unfinished() -> None:
    core = engine(tiny_target(VOCAB))
    core.add_request([1], greedy(2), request_id="mine")
    with pytest.raises(InputError, match="'mine' already"):
        core.add_request([1], greedy(2), request_id="mine")
    drain(core)
    assert core.add_request([1], greedy(2), request_id="mine") == "mine"


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], {}, "prompt is empty"),
        (None, {}, "must be a list of token ids"),
        ("text", {}, "integer token ids, got 't'"),
        ([1, 2.0], {}, "integer token ids, got 2.0"),
        ([True], {}, "integer token ids, got True"),
        ([1, 8], {}, "token id 8, expected ids from 0 to 7"),
        ([-1], {}, "token id -1"),
        ([1] * 96, {}, "96 tokens, but the context holds 96"),
        ([1], {"logit_bias": {8: 1.0}}, "logit_bias names token 8"),
        ([1], {"stop_token_ids": (9,)}, "stop_token_ids holds token id 9"),
        ([1], {"stop": ("x",)}, "stop strings need a tokenizer"),
    ],
)
def test_bad_requests_are_refused(prompt: Any, params: dict[str, Any], message: str) -> None:
    core = engine(tiny_target(VOCAB))
    with pytest.raises(InputError, match=message):
        core.add_request(prompt, SamplingParams(**params))
    assert not core.has_unfinished()
    core.check_integrity()


def test_params_must_be_params() -> None:
    with pytest.raises(InputError, match="params must be SamplingParams, got dict"):
        engine(tiny_target(VOCAB)).add_request([1], {"max_tokens": 3})  # type: ignore[arg-type]


def test_numpy_ids_are_ids() -> None:
    core = engine(tiny_target(VOCAB))
    assert completions(core, [np.array([1, 2, 3])], greedy(4))[0].token_ids == (  # type: ignore[list-item]
        completions(core, [[1, 2, 3]], greedy(4))[0].token_ids
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_pages": 0}, "num_pages must be an integer >= 1, got 0"),
        ({"num_pages": 4, "max_requests": 0}, "max_requests"),
        ({"num_pages": 4, "max_requests": 9, "max_batch_rows": 8}, r"at least max_requests \(9\), got 8"),
        ({"num_pages": 4, "max_context": 1}, "max_context must be an integer >= 2"),
        ({"num_pages": 90, "max_context": 97}, "model's 96 positions, got 97"),
        ({"num_pages": 4, "max_context": 17}, "does not fit the KV memory of 16 tokens"),
        ({"num_pages": 4, "seed": -1}, "seed"),
        ({"num_pages": True}, "num_pages"),
    ],
)
def test_bad_sizes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EngineCore(tiny_target(VOCAB), options=EngineOptions(**options))


@pytest.mark.pitfall(31)
def test_a_threshold_needs_a_confidence_head() -> None:
    target = tiny_target(VOCAB)
    for drafter in (NgramDrafter(), tiny_drafter(target, "none", confidence=False)):
        with pytest.raises(InputError, match="confidence head"):
            engine(target, drafter, ConfidenceThreshold(0.5))


def test_the_pool_bounds_the_context() -> None:
    core = engine(tiny_target(VOCAB), num_pages=5)
    assert core.max_context == 20
    with pytest.raises(InputError, match="the context holds 20"):
        core.add_request([1] * 20)
    assert len(completions(core, [[1] * 12], SamplingParams(max_tokens=None))[0].token_ids) == 8


def test_acceptance_statistics() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, make_drafter("vanilla", target), record_rounds=True)
    stats = completions(core, [[1, 2, 3]], SamplingParams(max_tokens=40, seed=1))[0].stats
    assert stats.rounds == len(stats.traces)
    assert stats.committed == sum(len(trace.committed) for trace in stats.traces) == 39
    assert stats.tau == 39 / stats.rounds > 1
    assert stats.verified == sum(stats.verified_at) == sum(trace.verified for trace in stats.traces)
    assert stats.accepted == sum(stats.accepted_at) == sum(trace.accepted for trace in stats.traces)
    for position, share in enumerate(stats.acceptance):
        tried = [trace for trace in stats.traces if trace.verified > position and trace.accepted >= position]
        assert stats.reached_at[position] == len(tried)
        assert share == sum(trace.accepted > position for trace in tried) / max(len(tried), 1)
    assert stats.first_token_seconds is not None
    assert stats.first_token_seconds > 0
    assert stats.decode_seconds > 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"stop": 5}, "stop must be a list of strings, got 5"),
        ({"stop": None}, "stop must be a list of strings, got None"),
        ({"stop_token_ids": 3}, "stop_token_ids must be a list of token ids, got 3"),
        ({"logit_bias": [1]}, "logit_bias must map token ids to numbers"),
        ({"logit_bias": None}, "logit_bias must map token ids to numbers"),
        ({"temperature": 10**400}, "temperature must be a number >= 0"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty must be a number >= 1e-06 and <= 1e"),
    ],
)
def test_bad_options_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SamplingParams(**params)


def test_the_strongest_repetition_penalties_keep_logits_finite() -> None:
    for penalty in (1e-6, 1e6):
        core = engine(tiny_target(VOCAB))
        for temperature in (0.0, 1e-6, 1.0):
            options = SamplingParams(temperature=temperature, max_tokens=6, repetition_penalty=penalty, seed=1)
            assert len(completions(core, [[1, 2, 3]], options)[0].token_ids) == 6


def test_an_engine_whose_target_was_taken_over_says_so() -> None:
    target = tiny_target(VOCAB)
    first = engine(target)
    name = first.add_request([1, 2, 3], greedy(8))
    first.step()
    second = engine(target)
    with pytest.raises(DsparkError, match="belongs to an engine that was made later"):
        first.step()
    assert first.abort(name)
    assert len(completions(second, [[1, 2, 3]], greedy(8))[0].token_ids) == 8
