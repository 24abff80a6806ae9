"""``dspark calibrate``, and what other verbs say about the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dspark.calibration import read_artefact

from .conftest import Dspark, one_line


@pytest.fixture
def checkpoint(drafter_dir: Path, tmp_path: Path) -> Path:
    """A drafter that nothing lies beside yet."""
    return Path(shutil.copytree(drafter_dir, tmp_path / "drafter"))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "held.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"some words {number}"}) + "\n" for number in range(4)))
    return file


@pytest.fixture
def calibrated(on_target: Dspark, checkpoint: Path, prompts: Path) -> Path:
    result = on_target(
        "calibrate", "--drafter", checkpoint, "--prompts", prompts, "--samples", 6, "--max-tokens", 64,
        "--concurrency", 24,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "held-out error of survival" in result.stdout.lower()
    assert str(checkpoint) in result.stderr
    return checkpoint


def test_the_whole_way(on_target: Dspark, calibrated: Path) -> None:
    artefact = read_artefact(calibrated / "sts.json")
    assert len(artefact.temperatures) == 4
    assert artefact.dataset == "held"
    assert artefact.num_samples >= 200
    assert (calibrated / "calibration.md").is_file()
    assert (calibrated / "calibration.json").is_file()
    told = json.loads(on_target("info", "--drafter", calibrated, "--json").stdout)
    assert told["drafter"]["confidence"] == "calibrated"
    assert told["drafter"]["calibrated_on"] == "held"
    assert any("calibrated on" in note for note in told["choices"].values())
    off = json.loads(on_target("info", "--drafter", calibrated, "--calibration", "off", "--json").stdout)
    assert off["drafter"]["confidence"] == "uncalibrated"
    for words in (("generate", "x"), ("generate", "x", "--calibration", calibrated / "sts.json")):
        run = on_target(*words, "--drafter", calibrated, "--policy", "threshold:0.3", "--max-tokens", 4)
        assert run.exit_code == 0, run.output


def test_uncalibrated_is_said(on_target: Dspark, checkpoint: Path) -> None:
    assert "uncalibrated" in on_target("info", "--drafter", checkpoint).stdout


def test_out(on_target: Dspark, checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    result = on_target(
        "calibrate", "--drafter", checkpoint, "--prompts", prompts, "--samples", 6, "--max-tokens", 64,
        "--concurrency", 24, "--out", tmp_path / "new" / "place", "--offsets",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert not (checkpoint / "sts.json").exists()
    assert read_artefact(tmp_path / "new" / "place" / "sts.json").calibration.offsets
    assert "with offsets" in result.stdout


def test_too_few_rounds(on_target: Dspark, checkpoint: Path, prompts: Path) -> None:
    result = on_target(
        "calibrate", "--drafter", checkpoint, "--prompts", prompts, "--samples", 1, "--max-tokens", 6
    )  # fmt: skip
    assert result.exit_code == 1
    assert "too few rounds to calibrate" in one_line(result)
    assert not (checkpoint / "sts.json").exists()


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_nothing_to_calibrate(on_target: Dspark, drafter: str) -> None:
    result = on_target("calibrate", "--drafter", drafter)
    assert result.exit_code == 1
    assert "no confidence head" in one_line(result)


def test_wrong_options_show_before_anything_is_loaded(dspark: Dspark, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words, says in (
        (("--out", tmp_path / "file"), "--out must be a folder"),
        (("--temperature", "warm"), "--temperature must be numbers"),
        (("--samples", 0), "samples must be >= 1"),
        (("--drafter", "nowhere"), "there is no drafter 'nowhere'"),
        (("--prompts", "gone.jsonl"), "cannot read prompts from gone.jsonl"),
    ):
        result = dspark("calibrate", "--target", "no such target", *words)
        assert result.exit_code == 1
        assert says in one_line(result)


@pytest.mark.parametrize("verb", [("generate", "x"), ("chat",), ("bench", "decode"), ("info",)])
def test_a_calibration_that_is_not_there(on_target: Dspark, verb: tuple[str, ...]) -> None:
    result = on_target(*verb, "--calibration", "gone.json", stdin="")
    assert result.exit_code == 1
    assert "there is no calibration 'gone.json'" in one_line(result)
