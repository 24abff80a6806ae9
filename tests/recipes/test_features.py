"""New feature stores: announced, continued where they stopped, whole shards or none."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.data.conversation import Conversation, append_conversations
from dspark.data.feature_store import FeatureCoding, FeatureStore, writer
from dspark.recipes import find_recipe
from dspark.recipes.features import NewStore, StorePlan, stored_bytes, verify_words
from dspark.target import LoadedTarget

DRAFTER = find_recipe("tiny").training.drafter
SMALL = StorePlan(shard_mb=0.008)  # 20 tokens and a bit


@pytest.fixture
def file(tmp_path: Path) -> Path:
    conversations = [
        Conversation(
            ids=[1, *range(40, 40 + size)], mask=[0] + [1] * size, domain="chat", temperature=0.0, complete=True
        )
        for size in (9, 20, 5, 6, 7, 30, 8)
    ]
    append_conversations(tmp_path / "c.jsonl", conversations)
    return tmp_path / "c.jsonl"


def planned(file: Path, how: StorePlan = SMALL) -> NewStore:
    return NewStore.plan([file], file.parent / "store", DRAFTER, "tiny-target", how)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.pitfall(41)
@pytest.mark.parametrize("coding", list(FeatureCoding))
def test_size_is_known_before_anything_is_written(file: Path, loaded: LoadedTarget, coding: FeatureCoding) -> None:
    new = planned(file, replace(SMALL, coding=coding))
    assert new.corpus.tokens == 92
    assert f"{new.size / 1e6:,.1f} MB as {coding}" in new.announcement
    folder = new.folder
    assert not folder.exists()
    done: list[int] = []
    new.write(loaded, DRAFTER, progress=lambda tokens, note: done.append(tokens))
    assert len(new.shard_sizes) > 1
    assert [path.stat().st_size for path in sorted(folder.glob("shard-*"))] == list(new.shard_sizes)
    assert stored_bytes(folder) == new.size == new.missing
    assert done[-1] == 92
    store = FeatureStore([folder])
    assert (store.manifest.tokens, store.manifest.target) == (92, "tiny-target")
    assert store.corpus.fingerprint() == new.corpus.fingerprint()
    assert "every checksum is right" in verify_words(folder)


def test_a_full_disk_keeps_what_is_finished(
    file: Path, loaded: LoadedTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = writer.write_columns

    def full(path: Path, *more: object) -> str:
        if path.name == "shard-000002.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *more)

    monkeypatch.setattr(writer, "write_columns", full)
    with pytest.raises(InputError, match=r"disk of .*store is full; 2 of \d shards are finished and stay"):
        planned(file).write(loaded, DRAFTER, progress=lambda tokens, note: None)
    monkeypatch.undo()
    assert sorted(contents(tmp_path / "store")) == [
        "manifest.json",
        "shard-000000.safetensors",
        "shard-000001.safetensors",
    ]
    with pytest.raises(InputError, match="is unfinished"):
        FeatureStore([tmp_path / "store"])
    again = planned(file)
    assert "2 of them are done" in again.announcement
    assert again.missing < again.size
    again.write(loaded, DRAFTER, progress=lambda tokens, note: None)
    assert FeatureStore([tmp_path / "store"]).manifest.tokens == 92


def test_ctrl_c_says_how_far_it_is(file: Path, loaded: LoadedTarget, tmp_path: Path) -> None:
    def interrupted(tokens: int, note: str) -> None:
        if tokens > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"interrupted; \d of \d shards are finished"):
        planned(file).write(loaded, DRAFTER, progress=interrupted)


KILLED = """
import sys, time
from pathlib import Path
from dspark.recipes import find_recipe
from dspark.recipes.features import NewStore, StorePlan
from dspark.target import load_target

file, target = Path(sys.argv[1]), sys.argv[2]
drafter = find_recipe("tiny").training.drafter
new = NewStore.plan([file], file.parent / "store", drafter, "tiny-target", StorePlan(shard_mb=0.008))
new.write(load_target(target, dtype="float32", device="cpu"), drafter, progress=lambda tokens, note: time.sleep(0.3))
"""


@pytest.mark.pitfall(41)
def test_killed_and_continued_is_byte_identical(
    file: Path, loaded: LoadedTarget, target_dir: Path, tmp_path: Path
) -> None:
    planned(file).write(loaded, DRAFTER, progress=lambda tokens, note: None)
    (tmp_path / "store").rename(tmp_path / "whole")
    run = subprocess.Popen([sys.executable, "-c", KILLED, str(file), str(target_dir)])
    deadline = time.monotonic() + 60
    while not (tmp_path / "store" / "shard-000001.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    (tmp_path / "store" / ".shard-000002.safetensors.77").write_bytes(b"half a shard")
    again = planned(file)
    assert 0 < len(again.manifest.shards) < len(again.shard_sizes)
    again.write(loaded, DRAFTER, progress=lambda tokens, note: None)
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_what_cannot_be_written(
    file: Path, loaded: LoadedTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(path: Path, folder: Path = tmp_path / "store") -> NewStore:
        return NewStore.plan([path], folder, DRAFTER, "tiny-target")

    with pytest.raises(InputError, match="there is no file"):
        plan(tmp_path / "missing.jsonl")
    with pytest.raises(InputError, match="exists and is no feature store"):
        plan(file, tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        plan(file, tmp_path / "no" / "store")
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"bad\.jsonl, line 1"):
        plan(tmp_path / "bad.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="no conversations"):
        plan(tmp_path / "empty.jsonl")
    with pytest.raises(InputError, match="give files of conversations"):
        NewStore.plan([], tmp_path / "store", DRAFTER, "tiny-target")
    with pytest.raises(InputError, match="width 64, tiny-target has 3 and 32"):
        plan(file).write(loaded, replace(DRAFTER, hidden_size=64), progress=lambda tokens, note: None)
    assert not (tmp_path / "store").exists()
    usage = namedtuple("usage", "free")(100)
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(InputError, match="MB are free; nothing was written"):
        plan(file)


@pytest.mark.parametrize(("coding", "shard_mb"), [("int4", 1.0), ("bf16", 0.0), ("fp8", float("nan"))])
def test_plans_that_make_no_sense(coding: str, shard_mb: float) -> None:
    with pytest.raises(InputError, match="got"):
        StorePlan.named(coding, shard_mb)


@pytest.mark.parametrize(("ids", "said"), [([1, 99999], "ids up to 99999"), ([1] * 600, "has 600 tokens")])
def test_conversations_of_another_target(ids: list[int], said: str, loaded: LoadedTarget, tmp_path: Path) -> None:
    foreign = Conversation(ids=ids, mask=[1] * len(ids), domain="chat", temperature=0.0, complete=True)
    append_conversations(tmp_path / "c.jsonl", [foreign])
    with pytest.raises(InputError, match=f"{said}.* written by another target"):
        planned(tmp_path / "c.jsonl").write(loaded, DRAFTER, progress=lambda n, note: None)
    assert [path.name for path in tmp_path.iterdir()] == ["c.jsonl"]
