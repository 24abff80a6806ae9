"""Answers under a constraint: the law is the target's own, restricted, though drafts that break it are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

import dspark.engine.core as core_module
from dspark.core import InputError, RequestsFailedError, SamplingParams
from dspark.engine.blocks import NO_BLOCKS, Blocks
from dspark.engine.constraints import within_constraints
from dspark.scheduling import FixedLength, StepOutcome
from dspark.verify import ConstraintError

from .test_law import Context, chi_square, conditional
from .tiny import drain, engine, greedy, make_drafter, tiny_target, whole

VOCAB, COUNT = 8, 1500
PROMPT = (3, 1, 4, 1, 5)


def follows(last: int, token: int) -> bool:
    return (last + token) % 3 != 0


class Neighbours:
    """Tokens whose sum with the one before is no multiple of three."""

    def __init__(self) -> None:
        self.last = PROMPT[-1]
        self.written: list[int] = []

    def allowed(self, drafts: Sequence[int]) -> int:
        for place, (last, token) in enumerate(zip((self.last, *drafts), drafts, strict=False)):
            if not follows(last, token):
                return place
        return len(drafts)

    def fill(self, drafts: Sequence[int], words: np.ndarray) -> None:
        for row, last in enumerate((self.last, *drafts)[: self.allowed(drafts) + 1]):
            words[row, 0] = sum(1 << token for token in range(VOCAB) if follows(last, token))

    def commit(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            assert follows(self.last, token)
            self.last = token
        self.written.extend(tokens)


class Broken(Neighbours):
    def fill(self, drafts: Sequence[int], words: np.ndarray) -> None:
        if len(self.written) >= 3:
            raise ConstraintError("too complex")
        super().fill(drafts, words)


def law(temperature: float) -> dict[Context, float]:
    """Probability of the first three tokens, each row restricted to what may follow."""
    rows = conditional(temperature)

    def restricted(context: Context) -> np.ndarray:
        last = context[-1] if context else PROMPT[-1]
        row = rows[context] * [follows(last, token) for token in range(VOCAB)]
        return np.asarray(row / row.sum())

    return {
        (a, b, c): float(restricted(())[a] * restricted((a,))[b] * restricted((a, b))[c])
        for a, b, c in product(range(VOCAB), repeat=3)
        if restricted(())[a] > 0 and restricted((a,))[b] > 0
    }


def sample(kind: str, temperature: float) -> Counter[Context]:
    target = tiny_target(VOCAB)
    core = engine(
        target, make_drafter(kind, target, block=3), num_pages=1500, max_requests=200, max_batch_rows=1200, seed=1
    )
    params = SamplingParams(temperature=temperature, max_tokens=5)
    names = [core.add_request(PROMPT, params, constraint=Neighbours) for _ in range(COUNT)]
    outputs = drain(core, check=False)
    return Counter([whole(outputs[name]).token_ids[:3] for name in names])


@pytest.mark.parametrize("kind", ["vanilla", "ngram", "null"])
@pytest.mark.pitfall(4)
def test_the_law_is_the_target_s_restricted(kind: str) -> None:
    assert chi_square(sample(kind, 1.0), {cell: p for cell, p in law(1.0).items() if p > 0}) > 1e-4


def test_cutting_a_drawn_draft_without_judging_it_fails_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(lengths: tuple[int, ...], ready: Sequence, blocks: Blocks) -> tuple[int, ...]:
        kept = [blocks.tokens[row][:length] if length else [] for row, length in enumerate(lengths)]
        return tuple([s.constraint.allowed(block) for s, block in zip(ready, kept, strict=True)])

    monkeypatch.setattr(core_module, "within_constraints", careless)
    assert chi_square(sample("vanilla", 1.0), {cell: p for cell, p in law(1.0).items() if p > 0}) < 1e-4


@pytest.mark.parametrize("kind", ["vanilla", "ngram"])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.4}, {"logit_bias": {2: 4.0}}], ids=str)
def test_greedy_answers_are_those_of_plain_decoding(kind: str, options: dict) -> None:
    target = tiny_target(VOCAB)
    found = []
    for name in ("null", kind):
        core = engine(target, make_drafter(name, target))
        core.add_request(PROMPT, greedy(20, **options), constraint=Neighbours, request_id="a")
        core.add_request(PROMPT, greedy(20), request_id="b")
        outputs = drain(core)
        found.append([whole(outputs[key]).token_ids for key in "ab"])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["vanilla", "ngram"])
def test_a_draft_that_is_ruled_out_counts_as_rejected(kind: str, temperature: float) -> None:
    """Left out or not: a policy that only saw what was verified of such blocks would think that all of it survives."""
    told: list[StepOutcome] = []

    class Noting(FixedLength):
        def outcome(self, outcome: StepOutcome) -> None:
            told.append(outcome)

    target = tiny_target(VOCAB)
    core, rejected = engine(target, make_drafter(kind, target), Noting()), 0
    params = SamplingParams(temperature=temperature, max_tokens=40, seed=1)
    core.add_request(PROMPT, params, constraint=Neighbours, request_id="a")
    while core.has_unfinished():
        (output,) = core.step()
        rounds, outcome = core.last_step.rounds, told[-1]
        if not rounds or not rounds[0].drafted or output.completion is not None:
            continue
        (verified,), (accepted,) = outcome.verified, outcome.accepted
        assert accepted == rounds[0].accepted
        assert verified == rounds[0].drafted if accepted == rounds[0].drafted else verified > accepted
        rejected += rounds[0].verified == accepted < rounds[0].drafted
    assert (rejected > 0) == (kind == "ngram" or temperature == 0.0), "left out where the residual needs no row"


def test_a_constraint_that_fails_is_named_and_the_others_go_on() -> None:
    target = tiny_target(VOCAB)
    core = engine(target, make_drafter("vanilla", target))
    core.add_request(PROMPT, greedy(12), constraint=Broken, request_id="bad")
    core.add_request(PROMPT, greedy(12), constraint=Neighbours, request_id="good")
    with pytest.raises(RequestsFailedError, match="too complex") as raised:
        drain(core)
    assert raised.value.request_ids == {"bad"}
    core.abort("bad")
    done = drain(core)["good"][-1].completion
    assert done is not None
    assert len(done.token_ids) == 12


def test_each_answer_has_a_constraint_of_its_own_and_keeps_it_through_preemption() -> None:
    target, made = tiny_target(VOCAB), []

    def make() -> Neighbours:
        made.append(Neighbours())
        return made[-1]

    core = engine(target, make_drafter("vanilla", target), num_pages=16, max_context=40, max_batch_rows=16)
    core.add_request(PROMPT, SamplingParams(n=4, max_tokens=30, seed=3), constraint=make, request_id="a")
    ended = [output.completion for output in drain(core)["a"] if output.completion is not None]
    assert sorted(done.token_ids for done in ended) == sorted(tuple(c.written) for c in made)
    assert any(done.stats.preemptions for done in ended)


@pytest.mark.parametrize("options", [{"min_tokens": 3}, {"ignore_eos": True}])
def test_options_that_contradict_a_constraint_are_refused(options: dict) -> None:
    core = engine(tiny_target(VOCAB))
    with pytest.raises(InputError, match=next(iter(options))):
        core.add_request(PROMPT, SamplingParams(**options), constraint=Neighbours)
    with pytest.raises(InputError, match=next(iter(options))):
        core.check_request(PROMPT, SamplingParams(**options), constrained=True)


def test_without_constraints_lengths_stay_the_same_object() -> None:
    lengths = (1, 2)
    assert within_constraints(lengths, (), NO_BLOCKS) is lengths
