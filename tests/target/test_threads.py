"""Thread settings are made before torch starts, and never against the user's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dspark.target import threads


def test_fills_the_machine_and_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    monkeypatch.setattr(threads, "physical_cores", lambda cpus: 4)
    monkeypatch.setattr(sys, "platform", "linux")
    env: dict[str, str] = {}
    assert threads.prepare_threads(env) == 4
    assert env == {"OMP_NUM_THREADS": "4", "OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}


def test_does_not_bind_a_part_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    monkeypatch.setattr(threads, "physical_cores", lambda cpus: 8)
    env: dict[str, str] = {}
    assert threads.prepare_threads(env) == 4
    assert env == {"OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize("name", ["OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"])
def test_respects_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(threads, "physical_cores", lambda cpus: 2)
    env = {"OMP_NUM_THREADS": "3,1", name: "mine"}
    assert threads.prepare_threads(env) == 3
    assert env == {"OMP_NUM_THREADS": "3,1", name: "mine"}


def test_a_container_quota_limits_the_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(threads, "_CGROUP", tmp_path / "cpu.max")
    monkeypatch.setattr(threads, "physical_cores", lambda cpus: 16)
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert threads.usable_cores() == 2
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert threads.usable_cores() == 16


def test_hyper_threads_count_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(threads, "_SYSTEM", tmp_path)
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert threads.physical_cores({0, 1, 2, 3}) == 2
    assert threads.physical_cores({0, 2}) == 1
    assert threads.physical_cores({8, 9}) == 2


def test_the_settings_reach_torch_as_the_package_does_not_load_it_before() -> None:
    script = (
        "import sys; from dspark.target.threads import prepare_threads\n"
        "assert 'torch' not in sys.modules\n"
        "prepare_threads({}); prepare_threads()\n"
        "import torch; print(torch.get_num_threads())"
    )
    env = {"OMP_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
