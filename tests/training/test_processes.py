"""Runs in processes of their own: two that share a run, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard as make_cut

from dspark.core import InputError
from dspark.training.optim import OptimConfig, build_optimizers
from dspark.training.run_log import read_log
from dspark.training.trainer import Trainer

from .counting import run_config, trainer

SCRIPT = Path(__file__).with_name("run_alone.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def finish(words: list[str]) -> None:
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]


def curve(folder: Path) -> list[tuple[int, float, float]]:
    return [(entry["step"], entry["loss"], entry["gradient_norm"]) for entry in read_log(folder)]


def in_this_process(folder: Path, plan: dict[str, Any]) -> Trainer:
    """Take a run to its end here, with one thread as in the other processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run = trainer(folder, run_config(**{**plan, "optim": OptimConfig(**plan["optim"])}))
    run.run()
    torch.set_num_threads(threads)
    return run


def state(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "state.pt", weights_only=True)


def closely(one: Any, other: Any, tolerance: float) -> None:
    """Nested dictionaries and lists of tensors are equal."""
    if isinstance(one, torch.Tensor):
        assert float((one.double() - other.double()).abs().max()) <= tolerance
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, value in one.items():
            closely(value, other[name], tolerance)
    elif isinstance(one, list):
        for left, right in zip(one, other, strict=True):
            closely(left, right, tolerance)


OPTIM = {"lr": 3e-3, "warmup": 5, "steps": 20, "decay_share": 0.0}
PLAN: dict[str, Any] = {"optim": OPTIM, "validate_every": 10, "ema": 0.9, "micro_batches": 2}


def test_two_processes_are_one(tmp_path: Path) -> None:
    """Under torchrun, DDP and FSDP2: the same losses, weights, moments, averages and validations within 1e-5.

    The state knows nothing of processes: ``moved`` is begun by two and finished by one.
    """
    plans: dict[str, dict[str, Any]] = {name: {**PLAN, "parallel": name} for name in ("ddp", "fsdp2")}
    begun = {"moved": {**plans["fsdp2"], "optim": {**OPTIM, "steps": 9}}}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    finish([*torchrun, str(SCRIPT), str(tmp_path), json.dumps({**plans, **begun})])
    alone = in_this_process(tmp_path / "alone", PLAN)
    in_this_process(tmp_path / "moved", PLAN)
    log, expected = read_log(tmp_path / "alone"), state(tmp_path / "alone")
    for name in (*plans, "moved"):
        found, weights = read_log(tmp_path / name), state(tmp_path / name)
        assert [entry["step"] for entry in found] == list(range(1, 21))
        for key in ("loss", "gradient_norm", "train_tau"):
            assert [e[key] for e in found] == pytest.approx([e[key] for e in log], abs=1e-5, rel=1e-5)
        assert found[-1]["sampled"]["tau"] == pytest.approx(log[-1]["sampled"]["tau"], abs=1e-5)
        assert found[-1]["greedy"]["blocks"] == log[-1]["greedy"]["blocks"]
        for part in ("weights", "average", "moments"):
            closely(weights[part], expected[part], 1e-5)
    assert alone.progress.step == 20
    for name in plans:
        assert (tmp_path / name / "last/model.safetensors").is_file()


@pytest.mark.pitfall(42)
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_resume_after_a_kill(tmp_path: Path, kill: signal.Signals) -> None:
    """Killed between two saved states, or told to stop: the curve goes on as if nothing had been."""
    plan = {"optim": {**OPTIM, "steps": 40}, "validate_every": 20, "save_every": 10}
    folder = tmp_path / "killed"
    words = [sys.executable, str(SCRIPT), str(tmp_path), json.dumps({"killed": plan}), "0.05"]
    process = subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (folder / "log.jsonl").exists() or len(read_log(folder)) < 16:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(kill)
    assert process.wait() != 0
    saved, reached = state(folder)["progress"]["step"], read_log(folder)[-1]["step"]
    assert reached < 40
    assert saved == (reached // 10 * 10 if kill is signal.SIGKILL else reached)
    resumed = in_this_process(folder, plan)
    whole = in_this_process(tmp_path / "whole", plan)
    assert curve(folder) == curve(tmp_path / "whole")
    weights = dict(whole.trainee.module.named_parameters())
    assert all(torch.equal(p, weights[name]) for name, p in resumed.trainee.module.named_parameters())


def test_muon_refuses_pieces_of_matrices() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        module = torch.nn.Linear(4, 4)
        make_cut(module)
        with pytest.raises(InputError, match=r"set optim\.muon_lr=none or parallel=ddp"):
            build_optimizers(module, ("",), OptimConfig(muon_lr=1e-3))
    finally:
        dist.destroy_process_group()
