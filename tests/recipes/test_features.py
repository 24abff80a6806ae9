"""New feature stores: announced, whole or not there at all."""

from __future__ import annotations

import errno
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.data.conversation import Conversation, append_conversations
from dspark.data.feature_store import FeatureStore, FeatureStoreWriter
from dspark.recipes import find_recipe
from dspark.recipes.features import NewStore
from dspark.target import LoadedTarget

DRAFTER = find_recipe("tiny").training.drafter


@pytest.fixture
def file(tmp_path: Path) -> Path:
    conversations = [
        Conversation(
            ids=[1, *range(40, 40 + size)], mask=[0] + [1] * size, domain="chat", temperature=0.0, complete=True
        )
        for size in (9, 20, 5)
    ]
    append_conversations(tmp_path / "c.jsonl", conversations)
    return tmp_path / "c.jsonl"


@pytest.mark.pitfall(41)
def test_size_is_known_before_anything_is_written(file: Path, loaded: LoadedTarget, tmp_path: Path) -> None:
    new = NewStore.plan([file], tmp_path / "store", DRAFTER)
    assert new.tokens == 37
    assert not (tmp_path / "store").exists()
    done: list[int] = []
    new.write(loaded, progress=lambda tokens, note: done.append(tokens))
    written = (tmp_path / "store").glob("*.*[0-9]")  # the flat arrays
    assert sum(path.stat().st_size for path in written) == new.size
    assert done[-1] == 37
    store = FeatureStore([tmp_path / "store"])
    assert (store.manifest.tokens, store.manifest.target) == (37, "tiny-target")


def test_a_failed_attempt_leaves_nothing(
    file: Path, loaded: LoadedTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: FeatureStoreWriter, *args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FeatureStoreWriter, "append", full)
    with pytest.raises(OSError, match="No space left"):
        NewStore.plan([file], tmp_path / "store", DRAFTER).write(loaded, progress=lambda tokens, note: None)
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written(
    file: Path, loaded: LoadedTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="there is no file"):
        NewStore.plan([tmp_path / "missing.jsonl"], tmp_path / "store", DRAFTER)
    with pytest.raises(InputError, match="exists; a feature store is written to a new folder"):
        NewStore.plan([file], tmp_path, DRAFTER)
    with pytest.raises(InputError, match="there is no folder"):
        NewStore.plan([file], tmp_path / "no" / "store", DRAFTER)
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"bad\.jsonl, line 1"):
        NewStore.plan([tmp_path / "bad.jsonl"], tmp_path / "store", DRAFTER)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="no conversations"):
        NewStore.plan([tmp_path / "empty.jsonl"], tmp_path / "store", DRAFTER)
    other = replace(DRAFTER, hidden_size=64)
    with pytest.raises(InputError, match="width 64, tiny-target has 3 and 32"):
        NewStore.plan([file], tmp_path / "store", other).write(loaded, progress=lambda tokens, note: None)
    usage = namedtuple("usage", "free")(100)
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(InputError, match="MB are free"):
        NewStore.plan([file], tmp_path / "store", DRAFTER)


@pytest.mark.parametrize(("ids", "said"), [([1, 99999], "ids up to 99999"), ([1] * 600, "has 600 tokens")])
def test_conversations_of_another_target(ids: list[int], said: str, loaded: LoadedTarget, tmp_path: Path) -> None:
    foreign = Conversation(ids=ids, mask=[1] * len(ids), domain="chat", temperature=0.0, complete=True)
    append_conversations(tmp_path / "c.jsonl", [foreign])
    with pytest.raises(InputError, match=f"{said}.* written by another target"):
        NewStore.plan([tmp_path / "c.jsonl"], tmp_path / "store", DRAFTER).write(loaded, progress=lambda n, note: None)
    assert [path.name for path in tmp_path.iterdir()] == ["c.jsonl"]
