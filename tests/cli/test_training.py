"""From conversations to a drafter that decodes, by commands alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.drafters.dspark import load_checkpoint
from dspark.recipes import training_run

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
    words = ("train", store, "run", "--recipe", "tiny", "--target", target_dir)
    first = dspark(*words, "--set", "optim.steps=3")
    assert first.exit_code == 0, first.output
    assert "step 3: loss" in first.stdout
    assert load_checkpoint("run/best").config.draft_vocab_size == 128
    further = dspark(*words, "--set", "optim.steps=6")
    assert "step 6: loss" in further.stdout
    assert "step 3: loss" not in further.stdout
    raw = ("generate", "hello", "--raw", "--max-tokens", 8)
    assert on_target(*raw, "--drafter", "run/best").stdout == on_target(*raw).stdout


def test_ctrl_c_while_training(store: Path, dspark: Dspark, target_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: training_run.Trainer, *told: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training_run.Trainer, "run", interrupted)
    result = dspark("train", store, "run-2", "--recipe", "tiny", "--target", target_dir)
    assert result.exit_code == 130
    assert "the same command goes on from the state in run-2" in one_line(result)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--recipe", "tinny"), "did you mean 'tiny'?"),
        (("--set", "optim.step=3"), "did you mean 'optim.steps'?"),
        (("--set", "optim.steps=x"), "optim.steps must be an integer"),
    ],
)
def test_bad_recipes(dspark: Dspark, target_dir: Path, words: tuple[str, str], said: str) -> None:
    result = dspark("train", "store", "run-3", "--target", target_dir, *words)
    assert result.exit_code == 1
    assert said in one_line(result)


def test_no_store(dspark: Dspark, target_dir: Path, tmp_path: Path) -> None:
    result = dspark("train", tmp_path, tmp_path / "run", "--recipe", "tiny", "--target", target_dir)
    assert result.exit_code == 1
    assert "no finished feature store" in one_line(result)
    assert not (tmp_path / "run").exists()


def test_store_of_another_target(store: Path, dspark: Dspark, target_dir: Path) -> None:
    result = dspark(
        "train", store, "run-4", "--target", target_dir, "--recipe", "tiny", "--set", "drafter.target_layer_ids=-1,0"
    )
    assert result.exit_code == 1
    assert "the drafter reads" in one_line(result)
