"""``dspark eval``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dspark.evaluation import Turn, can_plot, eval_run

from .conftest import Dspark, one_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two named benchmarks as local files, and a user's own."""
    (tmp_path / "gsm8k.jsonl").write_text('{"turns": ["1 + 1?"]}\n{"turns": ["2 + 2?"]}\n{"turns": ["3 + 3?"]}\n')
    (tmp_path / "mt_bench.jsonl").write_text('{"turns": ["hello", "again"]}\n')
    (tmp_path / "mine.jsonl").write_text('{"prompt": "abcabcabc"}\n{"prompt": "xyz"}\n')
    return tmp_path


def test_two_drafters_on_three_sets(on_target: Dspark, drafter_dir: Path, folder: Path) -> None:
    sets = (
        "--benchmark",
        "gsm8k:2",
        "-b",
        "mt-bench",
        "--benchmarks-folder",
        folder,
        "--prompts",
        folder / "mine.jsonl",
    )
    drafters = ("-d", f"ours={drafter_dir}", "-d", f"dflash={drafter_dir}", "--baseline", "dflash")
    result = on_target("eval", *sets, *drafters, "--max-tokens", 6, "--out", folder / "out")
    assert result.exit_code == 0, result.output
    assert result.stdout == (folder / "out" / "report.md").read_text()
    raw = json.loads((folder / "out" / "report.json").read_text())
    assert raw["prompts"] == {"mine": 2, "gsm8k": 2, "mt-bench": 1}
    assert raw["baseline"] == "dflash"
    assert [arm["name"] for arm in raw["arms"]] == ["plain", "ours", "dflash"]
    assert len(raw["rows"]) == 2 * 3 * 3
    pictures = sorted(path.name for path in (folder / "out").glob("*.png"))
    expected = ["conditional.png", "reliability.png", "survival.png", "sweep.png", "tau.png"]
    assert pictures == (expected if can_plot() else [])


def test_one_temperature_without_plain_decoding(on_target: Dspark, folder: Path) -> None:
    words = (
        "--prompts",
        folder / "mine.jsonl",
        "-d",
        "ngram",
        "--no-plain",
        "--temperatures",
        "0.7",
        "--max-tokens",
        4,
    )
    result = on_target("eval", *words)
    assert result.exit_code == 0, result.output
    assert "## Temperature 0.7" in result.stdout
    assert "plain: no drafts" not in result.stdout


def test_thresholds_are_run(on_target: Dspark, drafter_dir: Path, folder: Path) -> None:
    words = ("--prompts", f"{folder / 'mine.jsonl'}:1", "-d", drafter_dir, "--temperatures", "0", "--max-tokens", 4)
    result = on_target("eval", *words, "--sweep-live", "--no-plain")
    assert result.exit_code == 0, result.output
    live = result.stdout.split("Run by the engine with the policy")[1]
    assert live.count("| mine ") == 10


def stop_after(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """Press Ctrl-C once so many groups have been answered."""
    honest = eval_run.measure

    def measure(*args: object, **options: object) -> Iterator[tuple[Turn, ...]]:
        for number, group in enumerate(honest(*args, **options)):  # type: ignore[arg-type]
            if number == groups:
                raise KeyboardInterrupt
            yield group

    monkeypatch.setattr("dspark.evaluation.measure", measure)


def test_what_is_finished_is_kept(on_target: Dspark, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(monkeypatch, 1)
    words = ("--prompts", folder / "mine.jsonl", "-d", "ngram", "--max-tokens", 4, "--out", folder / "out")
    result = on_target("eval", *words, "--sweep-live")
    assert result.exit_code == 130
    assert "**Interrupted**" in result.stdout
    assert "interrupted; the report is about what was finished" in result.stderr
    raw = json.loads((folder / "out" / "report.json").read_text())
    assert (raw["complete"], {row["temperature"] for row in raw["rows"]}) == (False, {0.0})


def test_nothing_is_finished(on_target: Dspark, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(monkeypatch, 0)
    result = on_target("eval", "--prompts", folder / "mine.jsonl", "-d", "ngram", "--max-tokens", 4)
    assert result.exit_code == 130
    assert "before all drafters had answered" in one_line(result)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temperatures", "0,x"), "--temperatures must be numbers with commas between"),
        (("--temperatures", "0,0"), "temperatures must be different numbers"),
        (("--temperatures", "-1"), "temperature must be a number >= 0"),
        (("--concurrency", 0), "concurrency must be >= 1"),
        (("--max-tokens", 0), "max_tokens must be >= 1"),
        (("--policy", "fast"), "unknown policy 'fast'"),
        (("--benchmark", "gsm9k"), "there is no benchmark 'gsm9k'; there are gsm8k, humaneval, mt-bench"),
        (("--benchmark", "gsm8k:0"), "N >= 1"),
        (("--benchmark", "gsm8k", "--benchmarks-folder", "missing"), "there is no gsm8k.jsonl in missing"),
        (("--prompts", "missing.jsonl"), "cannot read prompts from missing.jsonl"),
        (("-d", "missing"), "there is no drafter 'missing'"),
        (("-d", "x=missing"), "there is no drafter 'missing'"),
        (("-d", "=x"), "NAME=DRAFTER"),
        (("--out", __file__), "--out must be a folder"),
    ],
)
def test_bad_input_is_reported_before_a_target_is_loaded(
    dspark: Dspark, monkeypatch: pytest.MonkeyPatch, words: tuple, said: str
) -> None:
    def loading(*_: object, **__: object) -> None:
        pytest.fail("the target was loaded first")

    monkeypatch.setattr("dspark.target.load_target", loading)
    result = dspark("eval", *words)
    assert result.exit_code == 1
    assert said in one_line(result)


def test_a_benchmark_and_a_file_of_one_name(dspark: Dspark, folder: Path) -> None:
    words = ("--benchmark", "gsm8k", "--benchmarks-folder", folder, "--prompts", folder / "gsm8k.jsonl")
    assert "two prompt files are called 'gsm8k'" in one_line(dspark("eval", *words))


def test_an_unknown_baseline(on_target: Dspark) -> None:
    assert "there is no drafter 'x' to compare with" in one_line(on_target("eval", "-d", "ngram", "--baseline", "x"))
