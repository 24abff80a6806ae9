"""Set-up says what is missing, repairs what was interrupted, and does nothing when all is done.

A stand-in plays Python and pip, so that no test here downloads or installs anything.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

STAND_IN = r"""#!/usr/bin/env bash
printf '%s\n' "$*" >>"$CALLS"
case "$*" in
    *'print(sys.version)'*) echo "${SAYS_VERSION:-3.11.7 (stand-in)}" ;;
    *'sys.exit(sys.version_info'*) [[ -z ${IS_OLD:-} ]] ;;
    *'platform.python_version'*) echo "${SAYS_VERSION:-3.11.7}" ;;
    *'import venv, ensurepip'*) [[ -z ${HAS_NO_VENV:-} ]] ;;
    '-m venv'*) rm -rf "${!#}"; mkdir -p "${!#}/bin"; cp "$0" "${!#}/bin/python" ;;
    *'-m pip'*)
        echo pip >.venv/setup.log
        [[ -z ${INTERRUPT_AT:-} || $* != *"$INTERRUPT_AT"* ]] || { kill -INT "$PPID"; exit 1; }
        [[ -n ${FAILS_AT:-} && $* == *"$FAILS_AT"* ]] || exit 0
        echo "$FAILS_WITH" >.venv/setup.log
        exit 1 ;;
    *'import torch'*) [[ -z ${IMPORT_FAILS:-} ]] || { echo 'libtorch.so: not found' >&2; exit 1; } ;;
esac
"""


class Checkout:
    """A copy of what set-up reads, with stand-ins for the tools it calls."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder / "checkout"
        self.calls_file = folder / "calls"
        (folder / "bin").mkdir()
        for name in ("scripts/setup.sh", "requirements/lock.txt", "pyproject.toml"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, self.folder / name)
        python = folder / "bin/python3"
        python.write_text(STAND_IN)
        python.chmod(0o755)
        self.env = {k: v for k, v in os.environ.items() if k not in ("PYTHON", "TORCH", "MAKEFLAGS")}
        self.env |= {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "CALLS": str(self.calls_file)}

    def set_up(self, **env: str) -> tuple[int, str, list[str]]:
        """Exit code, what was said, and the calls of Python."""
        self.calls_file.write_text("")
        result = subprocess.run(
            ["bash", "scripts/setup.sh"],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        return result.returncode, result.stderr, self.calls_file.read_text().splitlines()

    @property
    def is_ready(self) -> bool:
        return (self.folder / ".venv/.ready").exists()


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Checkout:
    return Checkout(tmp_path, root)


def installs(calls: list[str]) -> list[str]:
    return [call.split("setup.log ")[1] for call in calls if "-m pip" in call]


def test_the_lock_comes_first_then_torch_then_dspark(checkout: Checkout) -> None:
    code, _, calls = checkout.set_up()
    assert code == 0
    assert checkout.is_ready
    lock, torch, ours = installs(calls)
    assert lock == "--no-deps --require-hashes -r requirements/lock.txt"
    assert torch.startswith("torch==")
    assert ours == "--quiet --no-deps --no-build-isolation --editable ."


def test_a_second_call_does_nothing(checkout: Checkout) -> None:
    checkout.set_up()
    assert checkout.set_up() == (0, "", [])


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock on this machine")
def test_of_two_calls_at_the_same_time_the_later_one_waits(checkout: Checkout) -> None:
    checkout.calls_file.write_text("")
    command = ["bash", "scripts/setup.sh"]
    with (checkout.folder / "scripts/setup.sh").open() as script:
        fcntl.flock(script, fcntl.LOCK_EX)
        waiting = subprocess.Popen(command, cwd=checkout.folder, env=checkout.env, stderr=subprocess.PIPE, text=True)
        assert waiting.stderr is not None
        assert "waiting" in waiting.stderr.readline()
        assert not checkout.calls_file.read_text()
    assert "done" in waiting.communicate()[1]
    assert checkout.is_ready


@pytest.mark.parametrize("changed", ["requirements/lock.txt", "pyproject.toml"])
def test_a_changed_lock_updates_what_is_there(checkout: Checkout, changed: str) -> None:
    checkout.set_up()
    with (checkout.folder / changed).open("a") as file:
        file.write("# changed\n")
    code, _, calls = checkout.set_up()
    assert code == 0
    assert installs(calls)
    assert not any(call.startswith("-m venv") for call in calls)


def test_an_unfinished_venv_is_made_anew(checkout: Checkout) -> None:
    code, said, _ = checkout.set_up(INTERRUPT_AT="torch==")
    assert code == 130
    assert "starts it anew" in said
    assert not checkout.is_ready
    code, said, calls = checkout.set_up()
    assert code == 0
    assert "unfinished" in said
    assert any(call.startswith("-m venv --clear") for call in calls)
    assert len(installs(calls)) == 3


def test_an_interrupted_update_is_made_anew(checkout: Checkout) -> None:
    checkout.set_up()
    (checkout.folder / "requirements/lock.txt").write_text("changed")
    checkout.set_up(INTERRUPT_AT="requirements/lock.txt")
    assert not checkout.is_ready
    assert any(call.startswith("-m venv --clear") for call in checkout.set_up()[2])


def test_a_moved_checkout_is_set_up_anew(checkout: Checkout) -> None:
    checkout.set_up()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    assert any(call.startswith("-m venv") for call in checkout.set_up()[2])


def test_the_choice_of_torch_is_remembered(checkout: Checkout) -> None:
    checkout.set_up()
    calls = checkout.set_up(TORCH="torch==9.9 --pre")[2]
    assert any(call.startswith("-m venv") for call in calls)
    assert installs(calls)[1] == "torch==9.9 --pre"
    assert checkout.set_up() == (0, "", [])
    assert checkout.set_up(TORCH="default")[2]


def test_another_python_starts_afresh(checkout: Checkout) -> None:
    checkout.set_up()
    other = checkout.folder.parent / "bin/other"
    other.write_text(STAND_IN.replace("3.11.7", "3.12.1"))
    other.chmod(0o755)
    assert any(call.startswith("-m venv") for call in checkout.set_up(PYTHON="other")[2])
    assert not installs(checkout.set_up(PYTHON="other")[2])


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"PYTHON": "no-such-python"}, ["no Python found", "no-such-python", "apt-get install"]),
        ({"IS_OLD": "1", "SAYS_VERSION": "3.9.2", "PYTHON": "python3"}, ["3.11 or newer", "3.9.2", "PYTHON="]),
        ({"HAS_NO_VENV": "1", "PYTHON": "python3"}, ["no venv module", "python3-venv"]),
        (
            {"FAILS_AT": "lock.txt", "FAILS_WITH": "Max retries exceeded with url: /simple/x"},
            ["could not be reached", "PIP_INDEX_URL"],
        ),
        ({"FAILS_AT": "lock.txt", "FAILS_WITH": "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"}, ["cache purge"]),
        ({"FAILS_AT": "torch==", "FAILS_WITH": "No matching distribution found for torch"}, ["pip finds no", "TORCH="]),
        ({"FAILS_AT": "torch==", "FAILS_WITH": "OSError: [Errno 28] No space left on device"}, ["disk is full", "GB"]),
        ({"FAILS_AT": "--editable", "FAILS_WITH": "some error"}, ["dspark itself", "setup.log"]),
        ({"IMPORT_FAILS": "1"}, ["do not import", "libtorch.so: not found"]),
    ],
)
def test_a_failure_says_what_is_missing_and_how_to_get_it(
    checkout: Checkout, env: dict[str, str], expected: list[str]
) -> None:
    code, said, _ = checkout.set_up(**env)
    assert code == 1
    assert not checkout.is_ready
    for words in ["set-up stopped:", *expected]:
        assert words in said


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the CPU build has a name of its own on Linux only")
@pytest.mark.parametrize(
    "pip_says", ["No matching distribution found for torch", "ERROR: ResolutionImpossible: for help"]
)
def test_without_a_cpu_build_the_default_one_is_taken_and_announced(checkout: Checkout, pip_says: str) -> None:
    code, said, calls = checkout.set_up(FAILS_AT="+cpu", FAILS_WITH=pip_says)
    assert code == 0
    assert "several GB" in said
    assert "PIP_EXTRA_INDEX_URL" in said
    assert installs(calls)[1].endswith("+cpu")
    assert "+cpu" not in installs(calls)[2]
