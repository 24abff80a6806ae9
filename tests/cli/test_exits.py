"""Errors that come while a command runs."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dspark.cli.exits import explain, guarded
from dspark.core import InputError

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some/file")
COMMAND = [sys.executable, "-m", "dspark.cli"]


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output="stdout" not in options, text=True, check=False, **options
    )  # type: ignore[call-overload,no-any-return]


def raising(error: BaseException) -> int:
    """Exit code of an action that fails so."""
    with pytest.raises(typer.Exit) as exit_code:
        guarded(lambda: (_ for _ in ()).throw(error))
    return exit_code.value.exit_code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("two\n  lines"), 1, "dspark: two lines\n"),
        (FULL, 1, "dspark: some/file: No space left on device\n"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), 1, "dspark: there is not enough"),
        (RuntimeError("[enforce fail] PytorchStreamWriter failed writing file"), 1, "dspark: a file could not be"),
        (KeyboardInterrupt(), 130, "dspark: interrupted\n"),
        (KeyboardInterrupt("goes on from step 3"), 130, "dspark: goes on from step 3\n"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_one_line_and_a_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspark.cli.exits._discard_stdout", lambda: None)
    assert raising(error) == code
    printed = capsys.readouterr().err
    assert printed.startswith(said)
    assert printed.count("\n") == bool(said)


def test_faults_of_ours_are_not_explained_away() -> None:
    assert explain(KeyError("x")) is None
    assert explain(RuntimeError("shapes do not match")) is None
    with pytest.raises(AssertionError):
        guarded(lambda: (_ for _ in ()).throw(AssertionError("bug")))


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys; from dspark.cli.app import app\ntry: app(['--help'])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "generate" in done.stdout
    assert done.stdout.endswith("False\n")


def test_threads_are_bound_before_torch_comes(tmp_path: Path) -> None:
    code = (
        "import os, sys; from dspark.cli.threads import bind_threads; bind_threads()\n"
        "print(os.environ['OMP_NUM_THREADS'], 'torch' in sys.modules)"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    number, loaded = done.stdout.split()
    assert int(number) >= 1
    assert loaded == "False"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_full_disk_under_stdout() -> None:
    with open("/dev/full", "w") as full:
        done = run("--version", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == "dspark: No space left on device\n"


def test_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = run("--version", stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_in_the_middle(target_dir: Path, tmp_path: Path) -> None:
    """A real command, a real signal: one line, 130, and no file left behind."""
    words = ["data", "synthesize", "c.jsonl", "--conversations", "1000000", "--recipe", "tiny"]
    process = subprocess.Popen(
        [*COMMAND, *words, "--target", str(target_dir), "--dtype", "float32", "--set", "chunk=1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    record = tmp_path / "c.record.json"
    for _ in range(600):
        if record.exists() or process.poll() is not None:
            break
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.startswith("dspark: interrupted; c.jsonl holds ")
    assert stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.jsonl", "c.record.json"]


def test_characters_the_terminal_lacks(target_dir: Path) -> None:
    words = ["generate", "hi", "--target", str(target_dir), "--dtype", "float32", "--temperature", "1", "--seed", "1"]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    for more in ([], ["--json"]):
        done = run(*words, "--max-tokens", 60, *more, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()
    assert len(json.loads(done.stdout)["token_ids"]) <= 60


def test_an_argument_that_is_no_text(target_dir: Path) -> None:
    done = run("generate", "\udcff", "--target", target_dir, "--dtype", "float32")
    assert done.returncode == 1
    assert done.stderr.startswith("dspark: the content of a message is no Unicode text")
    assert done.stderr.count("\n") == 1
