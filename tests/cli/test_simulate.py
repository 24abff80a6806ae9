"""``dspark simulate``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dspark.evaluation import can_plot
from dspark.simulation import RecordedText, read_curve, write_recordings

from .conftest import Dspark, one_line

SMALL = ("--rounds", 1, "--answer-tokens", "10-30", "--prompt-tokens", 8)


def test_closed_loops(dspark: Dspark, tmp_path: Path) -> None:
    words = ("--concurrency", "1,8", "-p", "fixed:1", "-p", "async", "-p", "oracle", "--out", tmp_path / "out")
    result = dspark("simulate", *SMALL, *words)
    assert result.exit_code == 0, result.output
    assert result.stdout == (tmp_path / "out" / "report.md").read_text()
    raw = json.loads((tmp_path / "out" / "report.json").read_text())
    arms = ["fixed:0", "fixed:1", "async", "oracle"]
    assert [(row["users"], row["policy"]) for row in raw["rows"]] == [(users, arm) for users in (1, 8) for arm in arms]
    assert all(row["over_plain"] == 1 for row in raw["rows"] if row["policy"] == "fixed:0")
    assert "## async: one user's speed over fixed:1" in result.stdout
    pictures = {"frontier.png", "load.png"} if can_plot() else set()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"report.json", "report.md", *pictures}


def test_open_loops(dspark: Dspark, tmp_path: Path) -> None:
    words = ("--arrivals", "poisson:20", "--arrivals", "burst:5:60:2", "--requests", 30, "-p", "sync")
    result = dspark("simulate", *SMALL, *words, "--replicas", 2, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    raw = json.loads((tmp_path / "report.json").read_text())
    assert {row["load"] for row in raw["rows"]} == {"poisson:20", "burst:5:60:2"}
    course = raw["rows"][0]["course"]
    assert max(course["in_progress"]) > 0
    assert len(course["seconds"]) == len(course["tokens_per_second"]) == len(course["verify_len"])
    assert (tmp_path / "course.png").exists() == can_plot()


def test_recorded_answers_and_a_curve_of_ones_own(dspark: Dspark, tmp_path: Path) -> None:
    text = RecordedText(
        prompt=4,
        answer=4,
        max_tokens=9,
        by="place",
        proposed=np.array([2, 2, 2]),
        accepted=np.array([2, 1, 0]),
        confidence=np.full((3, 2), 0.5),
    )
    write_recordings(tmp_path / "answers.jsonl", [text])
    words = ("--traces", tmp_path / "answers.jsonl", "--costs", "step=10,row=0", "-p", "fixed", "--block-size", 2)
    result = dspark("simulate", *words, "--concurrency", 1, "--rounds", 1)
    assert result.exit_code == 0, result.output
    assert "1 recorded answers of" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("| fixed "))
    assert " 200.0 |" in row  # four tokens in two steps of 10 ms: the prompt's, and one round


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--costs", "nowhere.json"), "cannot read costs from 'nowhere.json'"),
        (("--policy", "asink"), "did you mean 'async'"),
        (("--concurrency", "x"), "--concurrency must be integers"),
        (("--concurrency", "0"), "a closed loop needs users"),
        (("--arrivals", "often"), "arrivals must be poisson:RATE"),
        (("--acceptance", "poetry"), "acceptance must be math, code, chat"),
        (("--answer-tokens", "0"), "a length must be at least one token"),
        (("--overconfidence", "0"), "--overconfidence must be above 0"),
        (("--traces", "nowhere.jsonl"), "cannot read the recorded answers nowhere.jsonl"),
        (("--replicas", "0"), "replicas must be an integer >= 1"),
        (("--no-confidence", "--policy", "sync"), "policy 'sync' needs a confidence head"),
    ],
)
def test_bad_input(dspark: Dspark, words: tuple[str, ...], message: str) -> None:
    result = dspark("simulate", *words)
    assert result.exit_code == 1
    assert message in one_line(result)


def test_check_simulator(on_target: Dspark, dspark: Dspark, drafter_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text('{"prompt": "abcabc"}\n{"prompt": "hello"}\n{"prompt": "x"}\n')
    words = ("--prompts", tmp_path / "some.jsonl", "--max-tokens", 6, "--repeats", 1, "--concurrency", 2)
    found = on_target("check", "simulator", *words, "-d", drafter_dir, "--tolerance", 1e9, "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert found.stdout == (tmp_path / "out" / "report.md").read_text()
    rows = json.loads((tmp_path / "out" / "report.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["fixed:0", "fixed:2", "fixed", "async"]
    assert all(row["steps"] == row["simulated_steps"] for row in rows if row["policy"].startswith("fixed"))
    again = ("--traces", tmp_path / "out" / "answers.jsonl", "--costs", tmp_path / "out" / "profile.json")
    result = dspark("simulate", *again, "--concurrency", 2, "--rounds", 1, "--block-size", 4, "-p", "fixed")
    assert result.exit_code == 0, result.output
    assert "3 recorded answers" in result.stdout


def test_check_simulator_fails_where_it_is_off(on_target: Dspark, drafter_dir: Path, tmp_path: Path) -> None:
    """With a profile of another machine."""
    (tmp_path / "some.jsonl").write_text('{"prompt": "abcabc"}\n')
    (tmp_path / "slow.json").write_text(read_curve("step=900,row=1").cost_model("slow").to_json())
    words = ("--prompts", tmp_path / "some.jsonl", "--max-tokens", 4, "--repeats", 1, "--concurrency", 1, "-p", "fixed")
    result = on_target("check", "simulator", *words, "-d", drafter_dir, "--costs", tmp_path / "slow.json")
    assert result.exit_code == 1
    assert "simulated throughput of 'fixed', 1 at a time, is off by -" in one_line(result)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "oracle"), "the oracle cannot run in a real engine"),
        (("--repeats", "0"), "concurrency and repeats must be at least 1"),
        (("--costs", "nowhere.json"), "cannot read the profile nowhere.json"),
        (("--drafter", "none"), "drafter 'none' drafts nothing for tiny-target"),
    ],
)
def test_check_simulator_bad_input(on_target: Dspark, words: tuple[str, ...], message: str) -> None:
    assert message in one_line(on_target("check", "simulator", *words))
