"""The make targets that people and CI rely on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TARGETS = [
    "help",
    "demo",
    "test",
    "drafter",
    "venv",
    "format",
    "lint",
    "types",
    "walls",
    "unit",
    "browser",
    "lock",
    "clean",
]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


def make(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=root, capture_output=True, text=True, check=False)


@needs_make
@pytest.mark.parametrize("target", TARGETS)
def test_target_exists(root: Path, target: str) -> None:
    result = make(root, "-n", target)
    assert result.returncode == 0, result.stderr


@needs_make
def test_help_names_every_target(root: Path) -> None:
    listed = re.findall(r"^  (\w+)  ", make(root, "help").stdout, re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)


@needs_make
def test_make_test_runs_every_check_after_set_up(root: Path) -> None:
    printed = make(root, "-n", "test").stdout
    order = [printed.index(word) for word in ("setup.sh", "ruff check", "ruff format --check", "mypy", "lint-imports")]
    assert order == sorted(order)
    assert printed.index("pytest") > order[-1]


def test_ci_is_make_test(root: Path) -> None:
    assert (root / ".ci/run").read_text().splitlines()[-1] == "exec make test"
