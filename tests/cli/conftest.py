"""Commands run inside the test's own process, over the tiny pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dspark.cli.app import app

from ..evaluation.tiny_pair import save_tiny_drafter, save_tiny_target

Dspark = Callable[..., Result]


@pytest.fixture(scope="session")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target on disk."""
    return save_tiny_target(tmp_path_factory.mktemp("tiny") / "tiny-target")


@pytest.fixture(scope="session")
def drafter_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random drafter for it."""
    return save_tiny_drafter(tmp_path_factory.mktemp("tiny") / "tiny-drafter")


@pytest.fixture
def dspark() -> Dspark:
    """Run a command line; gives exit code, stdout and stderr."""
    runner = CliRunner()

    def run(*words: object, stdin: str | bytes | None = None) -> Result:
        return runner.invoke(app, [str(word) for word in words], input=stdin)

    return run


@pytest.fixture
def on_target(dspark: Dspark, target_dir: Path) -> Dspark:
    """Run a command line whose target is the tiny one, in float32."""

    def run(*words: object, stdin: str | bytes | None = None) -> Result:
        return dspark(*words, "--target", target_dir, "--dtype", "float32", stdin=stdin)

    return run


def one_line(result: Result) -> str:
    """The one line a failed command has to say."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("dspark: ")
    assert "Traceback" not in result.output
    return lines[0]
