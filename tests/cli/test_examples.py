"""The examples run as they stand."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(
    example: Path,
    target_dir: Path,
    drafter_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [str(example), str(target_dir), str(drafter_dir)])
    runpy.run_path(str(example), run_name="__main__")
    assert len(capsys.readouterr().out) > 100


def test_there_are_examples() -> None:
    assert EXAMPLES
