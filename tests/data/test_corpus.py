"""Conversations in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dspark.core import InputError
from dspark.data.conversation import Conversation, append_conversations
from dspark.data.corpus import Corpus
from dspark.data.grouping import consecutive_groups


def conversation(ids: list[int], domain: str = "chat", *, complete: bool = True) -> Conversation:
    mask = [0] + [1] * (len(ids) - 1)
    return Conversation(ids=ids, mask=mask, domain=domain, temperature=len(ids) / 10, complete=complete)


@pytest.fixture
def corpus() -> Corpus:
    texts = [([1, 2, 3], "chat", True), ([4, 5], "math", False), ([6, 7, 8, 9], "code", True)]
    return Corpus.of(conversation(ids, domain, complete=complete) for ids, domain, complete in texts)


def test_sequences_lie_side_by_side(corpus: Corpus) -> None:
    assert (corpus.tokens, corpus.sequences) == (9, 3)
    assert corpus.offsets.tolist() == [0, 3, 5, 9]
    assert corpus.ids_of(1).tolist() == [4, 5]
    assert corpus.mask_of(2).tolist() == [False, True, True, True]
    assert corpus.temperatures == pytest.approx([0.3, 0.2, 0.4])
    assert corpus.ids[corpus.rows(np.array([2, 0]))].tolist() == [6, 7, 8, 9, 1, 2, 3]
    assert corpus.rows(np.zeros(0, np.int64)).tolist() == []


def test_selection(corpus: Corpus) -> None:
    chosen = corpus.select(np.array([2, 1]))
    assert chosen.ids.tolist() == [6, 7, 8, 9, 4, 5]
    assert chosen.domains == ("code", "math")
    assert chosen.complete.tolist() == [True, False]
    assert corpus.matching(domains=["math", "code"]).tolist() == [1, 2]
    assert corpus.matching(complete=True, max_length=3).tolist() == [0]
    assert corpus.matching().tolist() == [0, 1, 2]


def test_fingerprints_tell_corpora_apart(corpus: Corpus) -> None:
    whole = corpus.select(np.arange(3))
    assert whole.fingerprint() == corpus.fingerprint()
    joined = Corpus.joined([corpus.select(np.array([0])), corpus.select(np.array([1, 2]))])
    assert joined.fingerprint() == corpus.fingerprint()
    others = [corpus.select(np.array([1, 0, 2])), corpus.select(np.array([0, 1]))]
    assert len({other.fingerprint() for other in [corpus, *others]}) == 3


def test_files(tmp_path: Path, corpus: Corpus) -> None:
    append_conversations(tmp_path / "a.jsonl", [conversation([1, 2, 3])])
    append_conversations(tmp_path / "b.jsonl", [conversation([4, 5], "math", complete=False)])
    read = Corpus.read([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert read.fingerprint() == corpus.select(np.array([0, 1])).fingerprint()
    with pytest.raises(InputError, match="there is no file"):
        Corpus.read([tmp_path / "c.jsonl"])
    (tmp_path / "b.jsonl").write_text('{"ids": [1')
    with pytest.raises(InputError, match=r"b\.jsonl, line 1"):
        Corpus.read([tmp_path / "b.jsonl"])


@pytest.mark.parametrize(("ids", "said"), [([], "conversation 2 has no tokens"), ([1 << 40], "beyond 32 bits")])
def test_what_is_no_sequence(ids: list[int], said: str) -> None:
    bad = Conversation(ids=ids, mask=[0] * len(ids), domain="", temperature=0.0, complete=True)
    with pytest.raises(InputError, match=said):
        Corpus.of([conversation([1, 2]), bad])


def test_groups_are_as_large_as_they_can_be() -> None:
    assert list(consecutive_groups([3, 3, 5, 9, 1, 1], 6)) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(consecutive_groups([], 6)) == []
