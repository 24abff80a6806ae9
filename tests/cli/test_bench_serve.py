"""``dspark bench serve`` over the tiny pair: what is measured, what is said, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dspark.evaluation import can_plot
from dspark.evaluation.load import LoadTest, Segment
from dspark.scheduling import CostModel, ProfileIdentity, TimeTable

from .conftest import Dspark, one_line

SMALL = ("--max-tokens", 8, "--seconds-per-point", 0.02, "--open-seconds", 0.05)


@pytest.fixture(scope="module")
def prompt_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two domains of two prompts."""
    folder = tmp_path_factory.mktemp("prompts")
    first, second = folder / "easy.jsonl", folder / "hard.jsonl"
    first.write_text('{"prompt": "abcabcabcabc"}\n{"prompt": "xyxyxyxyxy"}\n')
    second.write_text('{"turns": ["hello"]}\n{"turns": ["what?"]}\n')
    return first, second


@pytest.fixture(scope="module", autouse=True)
def made_up_profile() -> Iterator[None]:
    """Rows that cost next to nothing, so that drafts that will be accepted pay; measuring is not the matter here."""

    def measure(target: object, drafter: object, identity: ProfileIdentity, *rest: object, **more: object) -> CostModel:
        verify = TimeTable(widths=(1, 512), depths=(0,), seconds=((0.001, 0.002),))
        draft = TimeTable(widths=(1, 64), depths=(4,), seconds=((1e-5, 2e-5),))
        return CostModel(identity=identity, verify=verify, draft=draft, note="made up")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dspark.engine.costs.measure_costs", measure)
        yield


def test_every_arm_at_every_load(
    on_target: Dspark, drafter_dir: Path, prompt_files: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = prompt_files
    words = ("--prompts", first, "--prompts", second, "--each", "--concurrency", "1,3", "--arrivals", "burst")
    drafters = ("--drafter", f"mine={drafter_dir}", "--drafter", "ngram", "--drafter", f"bad=random:{drafter_dir}")
    out = tmp_path / "report"
    result = on_target("bench", "serve", *words, *drafters, *SMALL, "--lengths", "2", "--repeats", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert result.stdout == (out / "report.md").read_text()
    raw = json.loads((out / "report.json").read_text())
    arms = [
        "plain",
        *(f"mine {policy}" for policy in ("fixed:2", "fixed:4", "threshold:0.5", "sync", "async", "oracle")),
        *(f"ngram {policy}" for policy in ("fixed:2", "fixed:7", "async", "oracle")),
        "bad async",
    ]
    assert [arm["name"] for arm in raw["arms"]] == arms
    points = [(p, a, u) for p in ("mixed", "easy", "hard") for a, u in (("closed", 1), ("closed", 3))]
    points += [("mixed", "burst", 3)]
    seen = [(row["point"]["traffic"], row["point"]["arrivals"], row["point"]["users"]) for row in raw["rows"]]
    assert seen == [point for point in points for _ in arms]
    assert [row["arm"] for row in raw["rows"]] == arms * len(points)
    assert all(row["repeats"] == 1 and row["differing"] == 0 and row["texts"] > 0 for row in raw["rows"])
    assert raw["texts"] == sum(row["texts"] for row in raw["rows"])
    assert raw["differences"] == []
    assert raw["complete"] is True
    assert {bar["claim"] for bar in raw["bars"] if bar["drafter"] == "bad"} == {"async / plain"}
    assert len(raw["bars"]) == 3 * 7 + 2 * (7 + 1 + 3)
    pictures = {"frontier.png", "load.png"} if can_plot() else set()
    assert {file.name for file in out.iterdir()} == {"report.json", "report.md"} | pictures


def stop_after(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """Press Ctrl-C once all arms have served so many loads."""
    honest = LoadTest.run

    def run(*args: object) -> Iterator[tuple[Segment, ...]]:
        for number, group in enumerate(honest(*args)):  # type: ignore[arg-type]
            if number == groups:
                raise KeyboardInterrupt
            yield group

    monkeypatch.setattr(LoadTest, "run", run)


def test_ctrl_c_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, on_target: Dspark, prompt_files: tuple[Path, Path], tmp_path: Path
) -> None:
    stop_after(monkeypatch, 2)
    words = ("--prompts", prompt_files[0], "--drafter", "ngram", "--concurrency", "1,2,3", "--policies", "none")
    out = tmp_path / "report"
    result = on_target("bench", "serve", *words, *SMALL, "--repeats", 1, "--arrivals", "none", "--out", out)
    assert result.exit_code == 130
    assert "interrupted; the report is about what was finished" in result.stderr
    assert "**Interrupted**" in result.stdout
    raw = json.loads((out / "report.json").read_text())
    assert raw["complete"] is False
    assert {row["point"]["users"] for row in raw["rows"]} == {1, 2}


def test_ctrl_c_before_there_is_anything(
    monkeypatch: pytest.MonkeyPatch, on_target: Dspark, prompt_files: tuple[Path, Path]
) -> None:
    stop_after(monkeypatch, 0)
    words = ("--prompts", prompt_files[0], "--drafter", "ngram", "--concurrency", "1", "--policies", "none")
    result = on_target("bench", "serve", *words, *SMALL, "--repeats", 1, "--arrivals", "none")
    assert result.exit_code == 130
    assert "interrupted before all arms had finished the first load" in one_line(result)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--concurrency", "4,x"), "--concurrency must be integers"),
        (("--concurrency", "4,2"), "concurrency must be rising numbers"),
        (("--arrivals", "flood"), "arrivals must be among poisson, ramp, burst, got 'flood'"),
        (("--no-mixed",), "there is no traffic"),
        (("--max-tokens", 2), "max_tokens must be >= 4"),
        (("--seconds-per-point", 0), "seconds per point must be above 0"),
        (("--token", -1), "latency targets must be above 0, got 2.0 and -1.0"),
        (("--lengths", "one"), "--lengths must be integers"),
        (("--policies", "asink"), "unknown policy 'asink'; did you mean 'async'?"),
        (("--policies", "fixed:3"), "fixed lengths are given with --lengths"),
        (("--drafter", "missing"), "there is no drafter 'missing'"),
        (("--drafter", "random:missing"), "there is no drafter 'missing'"),
        (("--drafter", "plain=auto"), "the name 'plain' is taken"),
        (("--out", __file__), "--out must be a folder"),
    ],
)
def test_bad_options_are_said_before_anything_is_loaded(dspark: Dspark, words: tuple, said: str) -> None:
    result = dspark("bench", "serve", *words)
    assert result.exit_code == 1
    assert said in one_line(result)


@pytest.mark.parametrize(
    ("drafters", "said"),
    [
        (("none",), "drafts nothing"),
        (("random",), "no drafter is shipped for tiny-target; give random:PATH"),
        (("ngram", "ngram"), "arms must have different names"),
    ],
)
def test_drafters_that_do_not_fit(on_target: Dspark, drafters: tuple[str, ...], said: str) -> None:
    options = [word for name in drafters for word in ("--drafter", name)]
    result = on_target("bench", "serve", *options)
    assert result.exit_code == 1
    assert said in one_line(result)
