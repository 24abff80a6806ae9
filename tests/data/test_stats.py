"""Numbers about conversations."""

from __future__ import annotations

import pytest

from dspark.core import InputError
from dspark.data.conversation import Conversation
from dspark.data.stats import measure


def conversation(ids: list[int], mask: list[int], domain: str = "chat", **changes: object) -> Conversation:
    return Conversation(
        **({"ids": ids, "mask": mask, "domain": domain, "temperature": 0.7, "complete": True} | changes)
    )  # type: ignore[arg-type]


def test_counts_and_shares() -> None:
    found = measure(
        [
            conversation([1, 2, 3, 4, 1, 5], [0, 0, 1, 1, 0, 1]),
            conversation([1, 2, 3, 3], [0, 0, 1, 1], "math", temperature=0.0, complete=False),
            conversation([9, 9], [0, 0], "math"),
        ],
        vocab_size=10,
    ).as_dict()
    assert (found["conversations"], found["tokens"], found["learnt"], found["answers"]) == (3, 12, 5, 3)
    assert found["mask_coverage"] == round(5 / 12, 4)
    assert found["by_domain"]["math"]["conversations"] == 2
    assert found["by_temperature"]["0"]["learnt"] == 2
    assert found["by_ended"]["cut"]["conversations"] == 1
    assert found["conversation_tokens"] == {"mean": 4.0, "shortest": 2, "median": 4, "p90": 6, "p99": 6, "longest": 6}
    assert found["answer_tokens"]["longest"] == 2
    assert found["duplicate_prompts"] == {"exact": 1}
    assert found["without_answer"] == 1


def test_coverage_of_draft_vocabularies() -> None:
    ids = [token for token in range(3000) for _ in range(3 if token < 1024 else 1)]
    stats = measure([conversation(ids, [1] * len(ids))])
    assert stats.coverage() == pytest.approx({1024: 3072 / len(ids), 2048: (3072 + 1024) / len(ids), 3000: 1.0})
    assert measure([]).as_dict()["draft_vocabulary_coverage"] == {}


def test_near_duplicates_need_texts() -> None:
    both = [conversation([1, 2, 3], [0, 0, 1]), conversation([1, 4, 3], [0, 0, 1])]
    assert measure(both).duplicates == {"exact": 0}
    assert measure(both, text_of=lambda ids: "the same").duplicates == {"exact": 0, "near": 1}


def test_tokens_of_another_target() -> None:
    with pytest.raises(InputError, match="conversation 2 has the token 12, but the target's ids end at 9"):
        measure([conversation([1], [1]), conversation([12], [1])], vocab_size=10)
