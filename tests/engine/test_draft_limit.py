"""A request may limit its own drafts, and every piece of text says how sure the drafter was of it."""

from __future__ import annotations

from typing import Any

import pytest

from dspark.core import InputError, Piece, SamplingParams, TokenOrigin
from dspark.engine import CompletionOutput, StepStats

from .tiny import Oracle, byte_tokenizer, completions, engine, greedy, make_drafter, plain, tiny_target, whole

VOCAB = 64
PROMPTS = [[1, 2, 3], [9, 8, 7, 6, 5], [4] * 6]


@pytest.mark.parametrize("limit", [0, 1, 3, None])
def test_a_limit_holds_for_its_request_alone(limit: int | None) -> None:
    target = tiny_target(VOCAB)
    expected = plain(target, PROMPTS, 30)
    texts = [(*prompt, *answer) for prompt, answer in zip(PROMPTS, expected, strict=True)]
    core = engine(target, Oracle(texts, VOCAB), record_rounds=True)  # always right, so that a limit shows
    params = [greedy(30, max_draft_tokens=limit), greedy(30), greedy(30, max_draft_tokens=2)]
    found = completions(core, PROMPTS, params)
    assert [done.token_ids for done in found] == expected
    longest = [max(len(trace.drafted) for trace in done.stats.traces) for done in found]
    assert longest == [5 if limit is None else limit, 5, 2]
    if limit == 0:
        assert set(found[0].origins) == {TokenOrigin.PLAIN}


@pytest.mark.parametrize("limit", [-1, 1.5, True, "3"])
def test_bad_limits_are_refused(limit: Any) -> None:
    with pytest.raises(InputError, match="max_draft_tokens must be an integer >= 0"):
        SamplingParams(max_draft_tokens=limit)


def run_recorded(confident: bool) -> tuple[CompletionOutput, list[Piece], list[StepStats]]:
    """One answer with its pieces and the steps that made it."""
    target = tiny_target(VOCAB)
    drafter = make_drafter("vanilla", target, confidence=confident)
    core = engine(target, drafter, record_rounds=True, tokenizer=byte_tokenizer())
    name = core.add_request([1, 2, 3], SamplingParams(max_tokens=40, seed=1))
    outputs, steps = [], []
    while core.has_unfinished():
        outputs += core.step()
        steps.append(core.last_step)
    assert {output.request_id for output in outputs} == {name}
    return whole(outputs), [piece for output in outputs for piece in output.pieces], steps


def test_pieces_carry_the_confidence_in_their_place() -> None:
    done, pieces, _ = run_recorded(confident=True)
    expected: list[tuple[TokenOrigin, float | None]] = [(TokenOrigin.PLAIN, None)]
    for trace in done.stats.traces:
        looked_at = [*trace.confidence[: trace.accepted + 1], None][: len(trace.committed)]
        if trace.accepted == trace.verified and len(trace.committed) > trace.accepted:
            looked_at[-1] = None  # the bonus: the target looked at no draft in its place
        expected += zip(done.origins[len(expected) :], looked_at, strict=False)
    assert [(piece.origin, piece.confidence) for piece in pieces] == expected
    assert {piece.origin for piece in pieces if piece.confidence is not None} >= {TokenOrigin.CORRECTION}


def test_without_a_confidence_head_there_is_none() -> None:
    _, pieces, steps = run_recorded(confident=False)
    assert {piece.confidence for piece in pieces} == {None}
    assert not any(found.believed for step in steps for found in step.rounds)


def test_steps_say_what_became_of_their_rounds() -> None:
    done, _, steps = run_recorded(confident=True)
    rounds = [found for step in steps for found in step.rounds]
    assert [found.verified for found in rounds] == [trace.verified for trace in done.stats.traces]
    assert [found.accepted for found in rounds] == [trace.accepted for trace in done.stats.traces]
    assert [found.believed for found in rounds] == [trace.confidence for trace in done.stats.traces]
    assert sum(found.reached for found in rounds) == sum(done.stats.reached_at)
