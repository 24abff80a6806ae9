"""A whole evaluation over the tiny pair: order, figures, the forms on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark.core import InputError
from dspark.evaluation import (
    EvalArm,
    EvalPlan,
    EvalReport,
    PromptSet,
    Turn,
    can_plot,
    check_baseline,
    count_answers,
    eval_markdown,
    live_arms,
    live_sweeps,
    make_arms,
    make_eval_report,
    measure,
    plot_evaluation,
    read_drafters,
)
from dspark.target import LoadedTarget

SETS = (
    PromptSet(domain="first", prompts=tuple(f"abc{number}" * 3 for number in range(6))),
    PromptSet(domain="second", prompts=("some other text",)),
)
PLAN = EvalPlan(max_tokens=10, concurrency=1, resamples=50)
"""One at a time makes groups of four."""


@pytest.fixture(scope="module")
def arms(loaded: LoadedTarget, drafter_dir: Path) -> tuple[EvalArm, ...]:
    return make_arms(loaded, read_drafters([f"ours={drafter_dir}", "ngram"]))


@pytest.fixture(scope="module")
def told() -> list[int]:
    return []


@pytest.fixture(scope="module")
def groups(arms: tuple[EvalArm, ...], loaded: LoadedTarget, told: list[int]) -> list[tuple[Turn, ...]]:
    return list(measure([arm.arm for arm in arms], SETS, PLAN, loaded, progress=lambda done, note: told.append(done)))


@pytest.fixture(scope="module")
def turns(groups: list[tuple[Turn, ...]]) -> list[Turn]:
    return [turn for group in groups for turn in group]


@pytest.fixture(scope="module")
def report(turns: list[Turn], arms: tuple[EvalArm, ...], loaded: LoadedTarget) -> EvalReport:
    return make_eval_report(turns, arms, SETS, PLAN, loaded, baseline="ours")


def test_all_arms_answer_a_group_before_the_next(groups: list[tuple[Turn, ...]], told: list[int]) -> None:
    places = [{(turn.domain, turn.first, turn.temperature) for turn in group} for group in groups]
    assert all(len(place) == 1 for place in places)
    assert [place.pop() for place in places] == [
        ("first", 0, 0.0), ("first", 0, 1.0), ("second", 0, 0.0), ("second", 0, 1.0),
        ("first", 4, 0.0), ("first", 4, 1.0),
    ]  # fmt: skip
    assert {group[0].arm for group in groups} == {"plain", "ours", "ngram"}
    assert told == list(range(1, 3 * 2 * 7 + 1))


def test_every_prompt_counts_once(report: EvalReport, arms: tuple[EvalArm, ...]) -> None:
    assert report.prompts == {"first": 6, "second": 1}
    assert report.complete
    assert [row.prompts for row in report.rows] == [6, 6, 6, 1, 1, 1] * 2
    assert count_answers(arms, SETS, PLAN) == sum(row.prompts for row in report.rows)


def test_figures_agree_with_each_other(report: EvalReport, turns: list[Turn]) -> None:
    for row in report.rows:
        assert row.tau.value == pytest.approx(row.counts.committed / row.counts.rounds)
        assert (row.tau.low is None) == (row.prompts == 1)
        assert row.tokens_per_second == pytest.approx(row.tokens / row.seconds)
        assert row.time is not None
        assert row.time.draft + row.time.verify + row.time.rest == pytest.approx(1.0)
        ours = [
            turn
            for turn in turns
            if (turn.arm, turn.domain, turn.temperature) == (row.arm, row.domain, row.temperature)
        ]
        stats = [entry for turn in ours for entry in turn.run.stats]
        assert row.counts.rounds == sum(entry.rounds for entry in stats)
        assert row.counts.accepted == sum(entry.accepted for entry in stats)
        assert row.counts.verified == sum(entry.verified for entry in stats)
    for entry in report.summaries:
        rows = [row for row in report.rows if (row.arm, row.temperature) == (entry.arm, entry.temperature)]
        assert entry.tau.value == pytest.approx(sum(row.tau.value for row in rows) / 2)


def test_comparisons(report: EvalReport) -> None:
    found = {(entry.arm, entry.temperature): entry for entry in report.summaries}
    assert found["plain", 0.0].over_baseline is None
    assert found["plain", 0.0].over_plain == 1.0
    ours, other = found["ours", 1.0], found["ngram", 1.0]
    assert ours.over_baseline is not None
    assert ours.over_baseline.value == 1.0
    assert other.over_baseline is not None
    assert other.over_baseline.value == pytest.approx(other.tau.value / ours.tau.value)


def test_greedy_answers_are_those_of_plain_decoding(turns: list[Turn]) -> None:
    texts: dict[tuple, set] = {}
    for turn in turns:
        if turn.temperature == 0.0:
            texts.setdefault((turn.domain, turn.first), set()).add(turn.run.token_ids)
    assert all(len(found) == 1 for found in texts.values())


def test_confidences_and_thresholds_where_there_are_any(report: EvalReport) -> None:
    for row in report.rows:
        assert (row.confidence is not None) == bool(row.sweep) == (row.arm == "ours")
        if row.confidence is not None:
            assert row.confidence.calibrated is None
            assert [trust.count for trust in row.confidence.raw.conditional.positions] == list(row.counts.reached_at)


def keys(value: Any) -> Any:
    """The shape of a JSON value: names, and for lists the shape of the first entry that has one."""
    if isinstance(value, dict):
        return {key: keys(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return next(([keys(entry)] for entry in value if isinstance(entry, dict)), [])
    return None


def test_json_form_is_stable(report: EvalReport) -> None:
    """Readers depend on these names; a change of them needs another schema number."""
    raw = json.loads(report.to_json())
    assert raw["schema"] == "dspark-eval/1"
    assert sorted(raw) == [
        "arms", "baseline", "complete", "dtype", "live", "machine", "made_at", "plan", "prompts", "rows", "schema",
        "summaries", "target",
    ]  # fmt: skip
    assert raw["plan"] == {
        "max_tokens": 10, "temperatures": [0.0, 1.0], "concurrency": 1, "seed": 0, "resamples": 50,
    }  # fmt: skip
    assert raw["arms"][1] | {"drafter": ""} == {
        "name": "ours", "drafter": "", "kind": "dspark", "block_size": 4, "policy": "fixed", "has_confidence": True,
        "temperatures": None,
    }  # fmt: skip
    row = next(row for row in raw["rows"] if row["arm"] == "ours")
    estimate = dict.fromkeys(("value", "low", "high"))
    trust = dict.fromkeys(("count", "predicted", "observed", "ece", "noise", "brier", "auroc"))
    by_position = {
        "overall": trust, "positions": [trust], "mean_ece": None, "worst_ece": None,
        "bins": {"count": [], "predicted": [], "observed": []},
    }  # fmt: skip
    point = dict.fromkeys(("threshold", "rounds", "acceptance_rate", "verify_len", "tau", "tokens_per_second"))
    confidence = {"rounds": None, "raw": {"conditional": by_position, "survival": by_position}, "calibrated": None}
    assert keys(row) == {
        "arm": None, "domain": None, "temperature": None, "prompts": None, "tau": estimate, "tau_full_blocks": None,
        "counts": {
            "rounds": None, "drafted": None, "verified": None, "accepted": None, "committed": None, "reached_at": [],
            "accepted_at": [],
        },
        "acceptance_rate": None, "conditional": [], "survival": [], "tokens": None, "seconds": None,
        "tokens_per_second": None, "over_plain": None,
        "time": dict.fromkeys(("draft", "verify", "rest", "step_seconds")),
        "confidence": confidence, "sweep": [point],
    }  # fmt: skip
    summary = next(entry for entry in raw["summaries"] if entry["arm"] == "ours")
    assert keys(summary) == {
        "arm": None, "temperature": None, "tau": estimate, "over_baseline": estimate, "tokens_per_second": None,
        "over_plain": None, "confidence": confidence, "sweep": [point],
    }  # fmt: skip


def test_markdown(report: EvalReport) -> None:
    text = eval_markdown(report)
    for said in (
        "## Temperature 0\n",
        "## Temperature 1\n",
        "tau / ours",
        "## Confidence",
        "## Thresholds",
        "per round",
    ):
        assert said in text
    assert "Interrupted" not in text
    assert "nan" not in text


def test_an_interrupted_run_is_reported_as_such(
    groups: list[tuple[Turn, ...]], arms: tuple[EvalArm, ...], loaded: LoadedTarget
) -> None:
    report = make_eval_report(groups[0], arms, SETS, PLAN, loaded, baseline="ours")
    assert (report.complete, report.prompts) == (False, {"first": 4})
    assert "**Interrupted**" in eval_markdown(report)
    json.loads(report.to_json())


@pytest.mark.skipif(not can_plot(), reason="matplotlib is not installed")
def test_pictures(report: EvalReport, tmp_path: Path) -> None:
    names = plot_evaluation(report, tmp_path)
    assert names == ("tau.png", "conditional.png", "survival.png", "reliability.png", "sweep.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_live_thresholds(arms: tuple[EvalArm, ...], loaded: LoadedTarget) -> None:
    plan, sets = EvalPlan(max_tokens=6, temperatures=(0.0,), resamples=10), SETS[1:]
    live = [arm for arm in live_arms(arms) if arm.threshold in (0.0, 0.9)]
    assert {arm.of for arm in live} == {"ours"}
    turns = [turn for group in measure([arm.arm.arm for arm in live], sets, plan, loaded) for turn in group]
    (found,) = live_sweeps(turns, live, ["second"], plan)
    assert (found.arm, found.domain, found.temperature) == ("ours", "second", 0.0)
    whole, strict = found.points
    assert (whole.threshold, strict.threshold) == (0.0, 0.9)
    assert strict.verify_len <= whole.verify_len
    assert whole.tokens_per_second is not None
    assert whole.tokens_per_second > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_tokens": 0}, "max_tokens must be >= 1"),
        ({"concurrency": 0}, "concurrency must be >= 1"),
        ({"seed": -1}, "seed must be >= 0"),
        ({"temperatures": ()}, "temperatures must be different numbers"),
        ({"temperatures": (1.0, 1.0)}, "temperatures must be different numbers"),
        ({"temperatures": (-1.0,)}, "temperature must be"),
    ],
)
def test_plan_numbers(options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        EvalPlan(**options)


@pytest.mark.parametrize(
    ("drafters", "said"),
    [
        (["missing"], "there is no drafter 'missing'"),
        (["x=missing"], "there is no drafter 'missing'"),
        (["=ngram"], "NAME=DRAFTER"),
        (["x="], "NAME=DRAFTER"),
        (["plain=ngram"], "taken by plain decoding"),
        (["x=ngram", "x=auto"], "'x' comes twice"),
        (["dflash:missing"], "there is no drafter 'missing'"),
    ],
)
def test_drafters_that_are_not_there(drafters: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_drafters(drafters)


def test_drafters_that_do_not_fit(loaded: LoadedTarget, arms: tuple[EvalArm, ...]) -> None:
    with pytest.raises(InputError, match="drafts nothing for tiny-target"):
        make_arms(loaded, read_drafters(["auto"]))
    with pytest.raises(InputError, match="called the same in ngram, ngram"):
        make_arms(loaded, read_drafters(["ngram", "ngram"]), plain=False)
    with pytest.raises(InputError, match="needs a drafter with a confidence head"):
        make_arms(loaded, read_drafters(["ngram"]), "threshold:0.5")
    with pytest.raises(InputError, match="no drafter 'x' to compare with; there are plain, ours, ngram"):
        check_baseline("x", arms)
    assert check_baseline(None, arms) == "ours"
    assert check_baseline(None, arms[:1]) == "plain"


def test_a_prompt_that_fills_the_model_is_named(arms: tuple[EvalArm, ...], loaded: LoadedTarget) -> None:
    sets = (PromptSet(domain="d", prompts=("a", "b" * 600)),)
    with pytest.raises(InputError, match="prompt 2 of 'd' has 600 tokens; tiny-target has 512 positions"):
        next(measure([arms[0].arm], sets, PLAN, loaded))
