"""Load tests on the real engine, over the tiny pair: what the oracle knows, and what goes on from engine to engine."""

from __future__ import annotations

import pytest

from dspark.evaluation import Arm, DrafterSpec, greedy, run_prompts
from dspark.evaluation.load import (
    CLOSED,
    EngineContestant,
    Known,
    LatencyTarget,
    LoadArm,
    Point,
    Sample,
    SkippingClock,
    Traffic,
    Window,
    arrival_times,
    check_texts,
    contestants,
    drive_closed,
    drive_open,
    load_arms,
    record_outcomes,
    record_texts,
    sample_of,
    shape,
)
from dspark.target import LoadedTarget

from .made_up_engine import costs

PROMPTS = ((1, 97, 98, 99, 97, 98, 99), (1, 120, 121, 120, 121), (1, 104, 105), (1, 50, 51, 52, 53))
TRAFFIC = Traffic(name="some", domains=(PROMPTS,))
TOKENS = 40
CHEAP = costs(fixed=1.0, each=1e-4, draft=1e-4)
"""Rows that cost next to nothing, but for a cliff every 16, which the loads here do not reach."""


@pytest.fixture(scope="module")
def arms(loaded: LoadedTarget) -> tuple[LoadArm, ...]:
    return load_arms(loaded, [DrafterSpec(drafter="ngram")], [2], ["async", "oracle"])


@pytest.fixture(scope="module")
def known(plain: Arm, arms: tuple[LoadArm, ...]) -> Known:
    outcomes = record_outcomes(arms[-1].arm, PROMPTS, TOKENS, 2)
    return Known(
        texts=record_texts(plain, PROMPTS, TOKENS, 4), outcomes={"ngram": outcomes}, costs={"ngram": CHEAP}, notes=()
    )


def serve(contestant: EngineContestant, known: Known, users: int, seed: int = 0) -> Sample:
    """A closed loop; its texts are those of plain decoding."""
    server = contestant.open(Point(traffic="some", arrivals=CLOSED, users=users), PROMPTS, TOKENS)
    trace = drive_closed(server, TRAFFIC.jobs(TOKENS, seed), users, Window(tokens=200), SkippingClock())
    check = check_texts(trace, known.texts)
    assert (check.texts, check.partings) == (len(trace.requests), ())
    return sample_of(trace, LatencyTarget())


def test_arms_are_named_and_known(arms: tuple[LoadArm, ...]) -> None:
    names = ["plain", "ngram fixed:2", "ngram fixed:7", "ngram async", "ngram oracle"]
    assert [entry.facts.name for entry in arms] == names == [entry.arm.name for entry in arms]
    assert [entry.facts.length for entry in arms] == [0, 2, 7, None, None]


@pytest.mark.parametrize("users", [1, 3])
def test_the_oracle_knows(arms: tuple[LoadArm, ...], known: Known, users: int) -> None:
    """Every draft it verifies is accepted; whole blocks verify more and accept no more. Engines pass, it stays."""
    running = contestants(arms, known)
    for seed in range(2):
        oracle, whole = serve(running[-1], known, users, seed), serve(running[2], known, users, seed)
        assert oracle.verified == oracle.accepted > 0
        assert whole.verified > whole.accepted > 0
        assert oracle.rounds <= whole.rounds


def test_outcomes_are_those_of_whole_blocks(arms: tuple[LoadArm, ...], known: Known) -> None:
    """What was recorded without verifying anything is what verifying everything finds, place by place."""
    server = arms[2].arm.open(PROMPTS, max_tokens=TOKENS, concurrency=2, record_rounds=True)
    run = run_prompts(server, PROMPTS, greedy(TOKENS))
    compared = 0
    for prompt, stats in zip(PROMPTS, run.stats, strict=True):
        for trace in stats.traces:
            assert trace.accepted == known.outcomes["ngram"][prompt][trace.anchor_position - len(prompt)]
            compared += 1
    assert compared > 40


def test_an_open_loop_through_the_engine(arms: tuple[LoadArm, ...], known: Known) -> None:
    times = arrival_times(shape("burst", 40.0, 0.5), 0)
    for contestant in contestants(arms, known):
        server = contestant.open(Point(traffic="some", arrivals="burst", users=2), PROMPTS, TOKENS)
        trace = drive_open(server, TRAFFIC.jobs(TOKENS, 0), times, SkippingClock())
        assert len(trace.requests) == len(times)
        assert all(request.ended is not None for request in trace.requests)
        assert check_texts(trace, known.texts).partings == ()
