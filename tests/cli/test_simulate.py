"""``dspark simulate``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dspark.evaluation import can_plot
from dspark.simulation import RecordedText, write_recordings

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
        prompt=4, answer=4, max_tokens=9, by="place", accepted=np.array([2, 1, 0]), confidence=np.full((3, 2), 0.5)
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
