"""The comparison behind the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.evaluation import Arm, Pair, Run, SideBySide
from dspark.evaluation.demo import (
    Parting,
    about_parting,
    fall_back,
    is_fault,
    prove,
    show,
    side_by_side,
)
from dspark.target import LoadedTarget


@pytest.fixture
def pair(plain: Arm, fast: Arm) -> Pair:
    return Pair(plain=plain, fast=fast)


def test_both_sides_write_the_same(pair: Pair) -> None:
    prompts = pair.prompts()[:3]
    result = side_by_side(pair, prompts, 10)
    assert result.identical == 3
    assert [run.token_ids for run in result.plain] == [run.token_ids for run in result.fast]
    assert result.ratio == pytest.approx(result.fast_rate / result.plain_rate)
    assert 1.0 <= result.tau <= 5.0


def test_a_text_that_differs_is_located(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark.evaluation import demo

    texts = iter([(7, 8, 9), (7, 9, 9), (7, 8), (7, 8, 9)])  # plain, fast, fast, plain

    def run(llm: object, prompts: object, params: object) -> Run:
        return Run(token_ids=(next(texts),), seconds=1.0, rounds=1, round_tokens=2)

    monkeypatch.setattr(demo, "run_prompts", run)
    result = side_by_side(pair, pair.prompts()[:2], 3)
    assert result.identical == 0
    first, second = result.partings
    assert (first.prompt, first.position) == (0, 1)
    assert first.margin is not None
    assert first.margin > 0
    assert (second.prompt, second.position, second.margin) == (1, 2, None)
    assert "token 2, where the two tokens are" in about_parting(first, "bfloat16")
    assert "one of the two ends" in about_parting(second, "bfloat16")


def test_rates_are_over_all_prompts() -> None:
    runs = [Run(token_ids=((1,) * tokens,), seconds=seconds) for tokens, seconds in ((10, 1.0), (30, 3.0))]
    halved = [Run(token_ids=run.token_ids, seconds=run.seconds / 2, rounds=4, round_tokens=10) for run in runs]
    result = SideBySide(plain=tuple(runs), fast=tuple(halved), partings=())
    assert (result.plain_rate, result.fast_rate, result.ratio, result.tau) == (10.0, 20.0, 2.0, 2.5)


def test_proof(pair: Pair) -> None:
    audit = prove(pair, 6)
    assert audit.passed
    assert (audit.counts[0].texts, audit.counts[0].identical, audit.counts[0].batch_size) == (6, 6, 6)


@pytest.mark.parametrize(("margin", "fault"), [(None, True), (5e-5, False), (1e-3, True)])
def test_in_float32_only_a_near_tie_is_forgiven(margin: float | None, fault: bool) -> None:
    assert is_fault(Parting(prompt=0, position=0, margin=margin)) == fault


def test_shown_answer_streams(pair: Pair) -> None:
    pieces = list(show(pair.fast, pair.prompts()[0], 8))
    assert pieces[-1].completion is not None
    assert "".join(piece.text for piece in pieces) == pieces[-1].completion.text


def test_n_gram_lookup_stands_in_where_nothing_is_shipped(loaded: LoadedTarget, drafter_dir: Path) -> None:
    name, remark = fall_back(loaded, "auto")
    assert name == "ngram"
    assert "no drafter is shipped for tiny-target" in remark
    assert fall_back(loaded, str(drafter_dir)) == (str(drafter_dir), "")
    with pytest.raises(InputError, match="compares a drafter with plain decoding"):
        fall_back(loaded, "none")
