"""The picture of a run, drawn from its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark.recipes import training_curve
from dspark.recipes.training_curve import draw_curve


def write_log(folder: Path, steps: int) -> None:
    figures = {"tau": 1.5, "conditional": [0.5, 0.4, 0.3], "blocks": 7}
    entries = [{"step": step, "loss": 5.0 / step, "seconds": 2.0} for step in range(1, steps + 1)]
    for entry in entries[9::10]:
        entry |= {"sampled": figures, "greedy": {**figures, "blocks": 0}}
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_a_picture_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_log(tmp_path, 30)
    path = draw_curve(tmp_path)
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")


def test_no_picture_without_figures_or_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert draw_curve(tmp_path) is None
    write_log(tmp_path, 9)
    assert draw_curve(tmp_path) is None
    write_log(tmp_path, 30)
    monkeypatch.setattr(training_curve, "can_plot", lambda: False)
    assert draw_curve(tmp_path) is None


def test_running_means() -> None:
    values = [float(value) for value in range(100)]
    means = training_curve._smoothed(values)
    assert means[0] == 0.0
    assert means[1] == 0.5
    assert means[99] == sum(values[50:]) / 50
