"""The measured step and the plain one it is compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dspark.cli.app import app
from dspark.core import InputError
from dspark.recipes import find_recipe, override
from dspark.recipes.train_bench import PARTS, StepBench, StepPlan
from dspark.target import LoadedTarget

PLAN = StepPlan(sequences=2, length=96, anchors=24, repeats=2)


@pytest.mark.parametrize(
    "changes",
    [
        ("bf16=false",),
        ("bf16=false", "drafter.draft_vocab_size=none"),
        ("bf16=false", "drafter.head_type=gated", "loss.tv=0"),
        ("bf16=false", "drafter.enable_confidence_head=false"),
    ],
)
def test_both_steps_have_the_same_gradient(loaded: LoadedTarget, changes: tuple[str, ...]) -> None:
    config = override(find_recipe("tiny").training, changes)
    report = StepBench(loaded, config, replace(PLAN, repeats=1)).run()
    assert report.gradient_difference < 1e-4


def test_report(loaded: LoadedTarget) -> None:
    config = override(find_recipe("tiny").training, ["bf16=true", "drafter.draft_vocab_size=none"])
    ticks: list[int] = []
    report = StepBench(loaded, config, PLAN).run(lambda done, note: ticks.append(done))
    assert ticks == [0, 1, 2]
    assert len(report.ratios) == 2
    assert report.gradient_difference < 0.05
    assert sum(report.shares.values()) == pytest.approx(1.0)
    assert all(report.shares[name] > 0 for name in PARTS)
    assert 0 < report.peak_bytes < report.plain_peak_bytes
    assert "times faster" in report.to_text()
    assert report.to_json()["ratios"] == list(report.ratios)


def test_what_cannot_be_measured(loaded: LoadedTarget) -> None:
    with pytest.raises(InputError, match="no other"):
        StepBench(loaded, find_recipe("eagle3").training, PLAN)
    with pytest.raises(InputError, match="has no 96 anchors"):
        StepPlan(length=64)
    with pytest.raises(InputError, match="repeats must be >= 1"):
        StepPlan(repeats=0)


def test_command(target_dir: Path, tmp_path: Path) -> None:
    words = ("bench", "train", "--recipe", "tiny", "--target", target_dir, "--length", 64, "--anchors", 8)
    result = CliRunner().invoke(app, [*map(str, words), "--repeats", "1", "--out", str(tmp_path / "step.json")])
    assert result.exit_code == 0, result.output
    assert "share by part" in result.stdout
    assert (tmp_path / "step.json").is_file()
