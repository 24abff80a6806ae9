"""Random traffic: whatever arrives, is aborted, runs out of room or meets again, answers are those of lone runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.core import FinishReason, SamplingParams
from dspark.engine import StepOutput

from .tiny import completions, engine, greedy, make_drafter, tiny_target, whole

VOCAB = 8

PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=18)
PARAMS = st.one_of(
    st.builds(greedy, st.integers(1, 14), stop_token_ids=st.sampled_from([(), (3,)])),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.5, 1.0]),
        max_tokens=st.integers(1, 14),
        seed=st.integers(0, 3),
        n=st.sampled_from([1, 1, 1, 3]),
    ),
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PROMPTS, PARAMS),
        st.tuples(st.just("step"), st.integers(1, 4)),
        st.tuples(st.just("abort"), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=14,
)
SIZES = st.sampled_from(
    [
        {"num_pages": 40, "max_batch_rows": 64},
        {"num_pages": 10, "max_context": 36, "max_batch_rows": 48},
        {"num_pages": 9, "max_context": 36, "max_batch_rows": 48, "prefix_cache": False},
        {"num_pages": 14, "max_requests": 3, "max_batch_rows": 24},
    ]
)


def answers(kind: str, prompt: list[int], params: SamplingParams) -> list[tuple[int, ...]]:
    """The ``n`` answers of a lone request."""
    target = tiny_target(VOCAB)
    core = engine(target, make_drafter(kind, target))
    name = core.add_request(prompt, params)
    found: dict[int, list[StepOutput]] = {}
    while core.has_unfinished():
        for output in core.step():
            assert output.request_id == name
            found.setdefault(output.index, []).append(output)
    return [whole(found[index]).token_ids for index in range(params.n)]


@pytest.mark.parametrize("kind", ["ngram", "vanilla"])
@settings(max_examples=20, deadline=None)
@given(events=EVENTS, sizes=SIZES)
def test_random_traffic(kind: str, events: list[tuple[Any, ...]], sizes: dict[str, Any]) -> None:
    target = tiny_target(VOCAB)
    core = engine(target, make_drafter(kind, target), **sizes)
    asked: dict[str, tuple[list[int], SamplingParams]] = {}
    got: dict[tuple[str, int], list[StepOutput]] = {}
    aborted: set[str] = set()

    def take(outputs: list[StepOutput]) -> None:
        for output in outputs:
            got.setdefault((output.request_id, output.index), []).append(output)
        core.check_integrity()

    for event in [*events, ("step", 2000)]:
        if event[0] == "add":
            asked[core.add_request(event[1], event[2])] = (event[1], event[2])
        elif event[0] == "abort" and event[1] < len(asked):
            name = list(asked)[event[1]]
            aborted.add(name)
            take(core.abort(name))
        elif event[0] == "step":
            for _ in range(event[1]):
                if not core.has_unfinished():
                    break
                take(core.step())
    assert not core.has_unfinished()
    assert core.pool_stats().used == 0
    for name, (prompt, params) in asked.items():
        done = [whole(got[name, index]) for index in range(params.n)]
        expected = answers(kind, prompt, params)
        for found, reference in zip(done, expected, strict=True):
            if found.finish_reason is FinishReason.ABORT:
                assert name in aborted
                assert found.token_ids == reference[: len(found.token_ids)]
            else:
                assert found.token_ids == reference


def test_the_engine_can_be_used_again_and_again() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, make_drafter("vanilla", target), num_pages=12)
    first = completions(core, [[1, 2, 3]] * 3, greedy(10))
    for _ in range(5):
        assert [d.token_ids for d in completions(core, [[1, 2, 3]] * 3, greedy(10))] == [d.token_ids for d in first]
        assert core.pool_stats().used == 0
