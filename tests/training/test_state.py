"""The file that a run is taken up from, and its log."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dspark.core import InputError
from dspark.training.run_log import RunLog, read_log

from .counting import run_config, trainer


@pytest.mark.parametrize("content", [b"", b"garbage\n", b"PK\x03\x04 half an archive"])
def test_a_damaged_state_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(InputError, match="damaged or no state of a run"):
        trainer(tmp_path, run_config())


def test_the_state_of_another_version_is_refused(tmp_path: Path) -> None:
    torch.save({"model": {}, "step": 3}, tmp_path / "state.pt")
    with pytest.raises(InputError, match="no state of a run of this version"):
        trainer(tmp_path, run_config())


def test_a_state_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(tmp_path, run_config())
    run.save()
    before = (tmp_path / "state.pt").read_bytes()

    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("basic_ios::clear: iostream error")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InputError, match=r"cannot be written .* is the disk full"):
        run.save()
    assert (tmp_path / "state.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_the_log_forgets_steps_that_are_taken_again(tmp_path: Path) -> None:
    log = RunLog(tmp_path, finished_steps=0, tensorboard=False)
    for step in (1, 2, 3):
        log.add({"step": step, "loss": 0.5})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # a kill in the middle of a line
    RunLog(tmp_path, finished_steps=2, tensorboard=False).add({"step": 3, "loss": 0.25})
    assert [(entry["step"], entry["loss"]) for entry in read_log(tmp_path)] == [(1, 0.5), (2, 0.5), (3, 0.25)]


def test_event_files_for_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = RunLog(tmp_path, finished_steps=0, tensorboard=True)
    log.add({"step": 1, "loss": 0.5, "greedy": {"tau": 2.0, "conditional": [0.5, 0.25]}})
    log.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"loss", "greedy/tau", "greedy/conditional/02"} <= set(events.Tags()["scalars"])


def test_tensorboard_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark.training.run_log.find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs the package tensorboard"):
        RunLog(tmp_path, finished_steps=0, tensorboard=True)
