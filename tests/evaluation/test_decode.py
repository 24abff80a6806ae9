"""The decode benchmark: who runs when, and what the figures are made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.engine import StepStats
from dspark.evaluation import (
    Arm,
    DecodePlan,
    DecodeReport,
    Measurement,
    PromptSet,
    Run,
    TransformersArm,
    can_plot,
    count_turns,
    make_arm,
    make_report,
    measure_decoding,
    plot_report,
    this_machine,
)
from dspark.evaluation.decode_figures import Spread, ratio, round_cost, same_texts, shares, tau, throughput
from dspark.target import LoadedTarget

SETS = (
    PromptSet(domain="first", prompts=("abcabcabc", "hello", "xyz")),
    PromptSet(domain="second", prompts=("some other text",)),
)
TEXTS = {("first", 1): (6, 6), ("first", 2): (8, 8), ("second", 1): (2, 2), ("second", 2): (4, 4)}
"""Identical and all texts of an arm, over both repeats."""
PLAN = DecodePlan(max_tokens=8, repeats=2, concurrency=(1, 2))


@pytest.fixture(scope="module")
def arms(loaded: LoadedTarget, plain: Arm, fast: Arm) -> list[Arm | TransformersArm]:
    return [plain, fast, make_arm(loaded, "ngram"), TransformersArm(loaded)]


@pytest.fixture(scope="module")
def measured(arms: list[Arm | TransformersArm], loaded: LoadedTarget) -> list[Measurement]:
    return measure_decoding(arms, SETS, PLAN, loaded)


@pytest.fixture(scope="module")
def report(arms: list, measured: list[Measurement], loaded: LoadedTarget) -> DecodeReport:
    return make_report(measured, arms, loaded, PLAN, this_machine())


def test_every_arm_answers_every_group_before_the_next(
    arms: list[Arm | TransformersArm], measured: list[Measurement]
) -> None:
    assert len(measured) == count_turns(arms, SETS, PLAN) == (3 + 1 + 2 + 1) * 2 * 4
    turns = [(m.repeat, m.concurrency, m.domain, m.group) for m in measured]
    blocks = [turns[start : start + 4] for start in range(0, len(turns), 4)]
    assert all(len(set(block)) == 1 for block in blocks)
    assert len({block[0] for block in blocks}) == len(blocks)
    starters = [measured[start].arm for start in range(0, len(measured), 4)]
    assert set(starters[:4]) == {arm.name for arm in arms}


def test_small_groups_are_filled_up(measured: list[Measurement]) -> None:
    assert all(len(m.run.token_ids) == m.concurrency for m in measured)


def test_all_arms_write_the_text_of_transformers(measured: list[Measurement]) -> None:
    """Float32: the engine's plain and drafted greedy texts are those of ``generate``, end token included."""
    cases: dict[tuple, set] = {}
    for m in measured:
        cases.setdefault((m.domain, m.concurrency, m.group), set()).add(m.run.token_ids)
    assert all(len(found) == 1 for found in cases.values())


def test_report_holds_every_case(report: DecodeReport) -> None:
    assert len(report.rows) == 2 * 2 * 4
    for row in report.rows:
        spread = row.tokens_per_second
        assert 0 < spread.low <= spread.median <= spread.high
        assert row.same_as_plain == TEXTS[row.domain, row.concurrency]


def test_shares_sum_to_one_and_overhead_is_all_but_models(report: DecodeReport) -> None:
    rows = [row for row in report.rows if row.shares is not None]
    assert {row.arm for row in rows} == {"plain", "dspark", "ngram"}
    for row in rows:
        part = row.shares
        assert part is not None
        assert part.draft + part.forward + part.sample + part.host == pytest.approx(1.0)
        models = part.forward + (part.draft if row.arm == "dspark" else 0.0)
        assert part.overhead == pytest.approx(1.0 - models)


def test_plain_is_its_own_measure(report: DecodeReport) -> None:
    for row in report.rows:
        if row.arm == "plain":
            assert row.over_plain == Spread(median=1.0, low=1.0, high=1.0)
            assert row.tau == 1.0
        if row.arm == "transformers":
            assert row.tau is None


def test_report_on_disk(report: DecodeReport, tmp_path: Path) -> None:
    raw = json.loads(report.to_json())
    assert len(raw["rows"]) == len(report.rows)
    assert raw["plan"] == {"max_tokens": 8, "repeats": 2, "concurrency": [1, 2]}
    assert raw["machine"]["threads"] >= 1
    text = report.to_markdown()
    assert text.count("| dspark ") == 2 * 2 * 2  # domains, concurrencies, tables
    assert "## 2 at a time" in text


@pytest.mark.skipif(not can_plot(), reason="matplotlib is not installed")
def test_picture(report: DecodeReport, tmp_path: Path) -> None:
    plot_report(report, tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def step(seconds: float, verify: tuple[int, ...] = (0,), prefill: int = 0) -> StepStats:
    return StepStats(
        rows=1,
        prefill_rows=prefill,
        verify_lens=verify,
        draft_seconds=0.1 * seconds,
        forward_seconds=0.6 * seconds,
        sample_seconds=0.2 * seconds,
        host_seconds=0.1 * seconds,
    )


def made(arm: str, repeat: int, seconds: float, tokens: int, steps: tuple[StepStats, ...] = ()) -> Measurement:
    run = Run(token_ids=(tuple(range(tokens)),), seconds=seconds, steps=steps, rounds=tokens // 2, round_tokens=tokens)
    return Measurement(arm=arm, domain="d", concurrency=1, repeat=repeat, group=0, run=run)


def test_speed_is_the_median_over_repeats_and_ratios_pair_them() -> None:
    measured = [
        made("plain", 0, 1.0, 10), made("plain", 1, 2.0, 10), made("plain", 2, 4.0, 10),
        made("x", 0, 0.5, 10), made("x", 1, 1.0, 10), made("x", 2, 2.0, 10),
    ]  # fmt: skip
    assert throughput(measured, "plain") == Spread(median=5.0, low=2.5, high=10.0)
    assert ratio(measured, "x", "plain") == Spread(median=2.0, low=2.0, high=2.0)
    assert tau(measured, "x") == 2.0


def test_round_cost_takes_whole_blocks_and_plain_steps_only() -> None:
    plain = (step(9.0, prefill=5), step(1.0), step(1.0), step(1.2))
    fast = (step(9.0, prefill=5), step(1.5, (4,)), step(0.1, (2,)), step(1.7, (4,)), step(1.5, (4,)))
    measured = [made("plain", 0, 1.0, 4, plain), made("x", 0, 1.0, 4, fast)]
    assert round_cost(measured, "x", "plain", 4) == pytest.approx(1.5)
    assert round_cost(measured, "x", "plain", 7) is None


def test_shares_leave_prefill_out() -> None:
    measured = [made("x", 0, 1.0, 4, (step(50.0, prefill=3), step(1.0, (4,))))]
    part = shares(measured, "x", drafts_with_a_model=True)
    assert part is not None
    assert (part.steps, part.step_seconds) == (1, pytest.approx(1.0))
    assert part.overhead == pytest.approx(0.3)
    without = shares(measured, "x", drafts_with_a_model=False)
    assert without is not None
    assert without.overhead == pytest.approx(0.4)
    assert shares([made("x", 0, 1.0, 4)], "x", drafts_with_a_model=True) is None


def test_different_texts_are_counted() -> None:
    measured = [made("plain", 0, 1.0, 4), made("plain", 1, 1.0, 5), made("x", 0, 1.0, 4), made("x", 1, 1.0, 6)]
    assert same_texts(measured, "x", "plain") == (1, 2)


@pytest.mark.parametrize("sizes", [{"max_tokens": 0}, {"repeats": 0}, {"concurrency": (1, 0)}, {"concurrency": ()}])
def test_plan_sizes(sizes: dict) -> None:
    with pytest.raises(InputError, match=next(iter(sizes))):
        DecodePlan(**sizes)


def test_arms_need_names_of_their_own(plain: Arm, loaded: LoadedTarget) -> None:
    with pytest.raises(InputError, match="different names"):
        measure_decoding([plain, plain], SETS, PLAN, loaded)
