"""From conversations to a drafter that decodes, by commands alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.drafters.dspark import load_checkpoint
from dspark.recipes import training_run
from dspark.training.run_log import read_log

from .conftest import Dspark, one_line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def store(in_folder: Path, on_target: Dspark) -> Path:
    if not Path("store").exists():
        made = on_target("data", "synthesize", "c.jsonl", "--conversations", 8, "--recipe", "tiny", "--seed", 3)
        assert (made.exit_code, made.stdout) == (0, ""), made.output
        assert "c.jsonl holds" in made.stderr
        written = on_target("data", "features", "c.jsonl", "store", "--recipe", "tiny")
        assert written.exit_code == 0, written.output
        assert "tokens take" in written.stderr
    return Path("store")


def test_train_and_decode(store: Path, dspark: Dspark, on_target: Dspark, target_dir: Path) -> None:
    words = ("train", "tiny", "run", "--store", store, "--target", target_dir)
    first = dspark(*words, "optim.steps=3")
    assert first.exit_code == 0, first.output
    assert "step 3: loss" in first.stdout
    assert load_checkpoint("run/best").config.draft_vocab_size == 128
    further = dspark(*words, "optim.steps=6")
    assert "step 6: loss" in further.stdout
    assert "step 3: loss" not in further.stdout
    raw = ("generate", "hello", "--raw", "--max-tokens", 8)
    assert on_target(*raw, "--drafter", "run/best").stdout == on_target(*raw).stdout


@pytest.mark.pitfall(44)
def test_training_without_a_store_and_without_a_gpu(store: Path, on_target: Dspark) -> None:
    """The target runs beside the trainer; a machine without GPUs really trains."""
    result = on_target("train", "tiny", "run-online", "--data", "c.jsonl", "--init-from", "run/best", "optim.steps=2")
    assert result.exit_code == 0, result.output
    assert "step 2: loss" in result.stdout
    steps = [entry["step"] for entry in read_log(Path("run-online"))]
    assert steps == [1, 2]
    assert load_checkpoint("run-online/best").config == load_checkpoint("run/best").config


def test_ctrl_c_while_training(store: Path, on_target: Dspark, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: training_run.Trainer, *told: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training_run.Trainer, "run", interrupted)
    result = on_target("train", "tiny", "run-2", "--store", store)
    assert result.exit_code == 130
    assert "the same command goes on from the state in run-2" in one_line(result)


def test_dry_run(on_target: Dspark, tmp_path: Path) -> None:
    result = on_target("train", "tiny", "--dry-run", "optim.steps=50", "--processes", 2, "--flops", "1e12")
    assert result.exit_code == 0, result.output
    for said in ("parameters:", "memory of a process:", "storage", "tokens:", "time:", "50 steps of 2 sequences"):
        assert said in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tinny", "run-3", "--store", "store"), "did you mean 'tiny'?"),
        (("tiny", "run-3", "--store", "store", "optim.step=3"), "did you mean 'optim.steps'?"),
        (("tiny", "run-3", "--store", "store", "optim.steps=x"), "optim.steps must be an integer"),
        (("tiny", "run-3", "--store", "store", "parallel=fsdp"), "parallel must be one of ddp, fsdp2"),
        (("tiny", "run-3"), "give either files of conversations (--data) or feature stores (--store)"),
        (("tiny", "--store", "store"), "a folder for the run is missing"),
        (("tiny", "run-3", "run-4", "--store", "store"), "expected one folder"),
    ],
)
def test_bad_words(on_target: Dspark, words: tuple[str, ...], said: str) -> None:
    result = on_target("train", *words)
    assert result.exit_code == 1
    assert said in one_line(result)


def test_no_store(on_target: Dspark, tmp_path: Path) -> None:
    result = on_target("train", "tiny", tmp_path / "run", "--store", tmp_path)
    assert result.exit_code == 1
    assert "no finished feature store" in one_line(result)
    assert not (tmp_path / "run").exists()


def test_store_of_another_target(store: Path, on_target: Dspark) -> None:
    result = on_target("train", "tiny", "run-4", "--store", store, "drafter.target_layer_ids=-1,0")
    assert result.exit_code == 1
    assert "the drafter reads" in one_line(result)
