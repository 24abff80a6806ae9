"""``dspark data features``: stated, written, continued, verified, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.data.conversation import Conversation, append_conversations
from dspark.data.feature_store import FeatureStore

from .conftest import Dspark, one_line

TINY = ("--recipe", "tiny")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ids = [1, *range(40, 70)]
    one = Conversation(ids=ids, mask=[0] * 5 + [1] * 26, domain="chat", temperature=0.0, complete=True)
    append_conversations(tmp_path / "c.jsonl", [one] * 4)
    return tmp_path / "c.jsonl"


def test_a_store_is_written_and_verified(file: Path, on_target: Dspark, dspark: Dspark) -> None:
    words = ("data", "features", file, "store", "--store-as", "fp8", "--shard-mb", "0.01", "--verify", *TINY)
    made = on_target(*words)
    assert (made.exit_code, made.stdout) == (0, ""), made.output
    stated, written, verified = made.stderr.splitlines()
    assert "features of 124 tokens take 0.0 MB as fp8" in stated
    assert written == "store holds 124 tokens"
    assert verified == "store is whole: 124 tokens in 2 shards, every checksum is right"
    assert FeatureStore([Path("store")]).manifest.coding == "fp8"
    again = on_target(*words)
    assert again.exit_code == 1
    assert "store exists and holds a finished feature store" in one_line(again)
    checked = dspark("data", "features", "--verify", "store")
    assert (checked.exit_code, checked.stderr.strip()) == (0, verified)
    shard = Path("store/shard-000001.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    damaged = dspark("data", "features", "--verify", "store")
    assert damaged.exit_code == 1
    assert f"{shard} is damaged" in one_line(damaged)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("store",), "give files of conversations, or --verify"),
        (("--verify", "store"), "no finished feature store in store"),
        (("c.jsonl", "store", "--store-as", "int8"), "stored as bf16 or fp8, got 'int8'"),
        (("c.jsonl", "store", "--shard-mb", "0"), "above 0"),
        (("d.jsonl", "store"), "there is no file d.jsonl"),
    ],
)
def test_what_is_refused(file: Path, on_target: Dspark, words: tuple[str, ...], said: str) -> None:
    result = on_target("data", "features", *words, *TINY)
    assert result.exit_code == 1
    assert said in one_line(result)
    assert not Path("store").exists()
