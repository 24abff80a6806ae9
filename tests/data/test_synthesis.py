"""Self-written conversations: structure, masks, limits, continuation of a stopped run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.data.chat_format import ChatFormat
from dspark.data.conversation import Conversation, append_conversations, read_conversations
from dspark.data.duplicates import Duplicates, SeenTexts
from dspark.data.opening_texts import load_openings, opening_languages
from dspark.data.synthesis import Continuation, Material, SynthesisConfig, synthesize

FORM = ChatFormat(opening=(90, 91), to_answer=(99, 92), to_user=(99, 93))
BRIEF = ChatFormat(opening=(90, 94, 91), to_answer=(99, 92), to_user=(99, 93))
OPENINGS = {"en": {"chat": [[1], [2, 3]], "math": [[4]], "code": [[5, 6]]}, "de": {"chat": [[7]], "math": [[8]]}}
MATERIAL = Material(
    forms={"": FORM, "Be brief.": BRIEF}, openings=OPENINGS, text_of=lambda ids: " ".join(map(str, ids))
)


def write(jobs: Sequence[Continuation]) -> list[list[int]]:
    """Writes 10 + length mod 5 as often as its seed says; runs into its limit for some seeds."""
    found = []
    for job in jobs:
        length = job.seed % 40
        found.append([*[10 + length % 5] * length, 99][: job.max_tokens])
    return found


CONFIG = SynthesisConfig(user_lengths=(16, 30), answer_lengths=(20, 35), max_tokens=100, second_turn=0.5)


def test_masks_cover_answers_and_nothing_else() -> None:
    conversations = synthesize(range(200), CONFIG, MATERIAL, write)
    assert 60 < len(conversations) < 200
    assert any(sum(c.mask) and c.ids.count(92) == 2 for c in conversations)
    for conversation in conversations:
        inside = False
        for previous, token, learnt in zip([0, *conversation.ids], conversation.ids, conversation.mask, strict=False):
            inside = (inside and previous != 99) or previous == 92
            assert learnt == int(inside), (conversation.ids, conversation.mask)
            assert token != 99 or learnt or previous != 92


@pytest.mark.pitfall(43)
def test_cut_answers_are_marked_and_end_their_conversation() -> None:
    conversations = synthesize(range(200), CONFIG, MATERIAL, write)
    assert {c.complete for c in conversations} == {True, False}
    for conversation in conversations:
        assert (conversation.ids[-1] == 99) == conversation.complete
        assert len(conversation.ids) <= CONFIG.max_tokens


def test_a_number_gives_the_same_conversation_in_any_chunk() -> None:
    whole = synthesize(range(20), CONFIG, MATERIAL, write)
    parts = synthesize(range(7), CONFIG, MATERIAL, write) + synthesize(range(7, 20), CONFIG, MATERIAL, write)
    assert whole == parts


def test_unknown_domains_are_refused() -> None:
    with pytest.raises(InputError, match="poetry"):
        synthesize([0], SynthesisConfig(domains={"poetry": 1.0}), MATERIAL, write)


def test_files_round_trip_and_name_the_wrong_line(tmp_path: Path) -> None:
    path = tmp_path / "conversations.jsonl"
    conversations = synthesize(range(5), CONFIG, MATERIAL, write)
    append_conversations(path, conversations[:2])
    append_conversations(path, conversations[2:])
    assert list(read_conversations(path)) == conversations
    with path.open("a") as file:
        file.write('{"ids": [1]}\n')
    with pytest.raises(InputError, match=f"line {len(conversations) + 1}"):
        list(read_conversations(path))
    with pytest.raises(InputError, match="one mask entry per token"):
        Conversation(ids=[1, 2], mask=[1], domain="chat", temperature=0.0, complete=True)


def test_system_prompts_languages_and_domains_are_mixed() -> None:
    config = replace(
        CONFIG,
        systems={"": 0.5, "Be brief.": 0.5},
        languages={"en": 0.5, "de": 0.5},
        domains={"chat": 0.5, "math": 0.5},
    )
    found = {
        (94 in c.ids, next(iter(set(c.ids[2:4]) & {1, 2, 4, 7, 8})), c.domain)
        for c in synthesize(range(300), config, MATERIAL, write)
    }
    assert {(with_system, domain) for with_system, _, domain in found} == {
        (with_system, domain) for with_system in (False, True) for domain in ("chat", "math")
    }
    assert {opening for _, opening, _ in found} == {1, 2, 4, 7, 8}


@pytest.mark.parametrize("what", [{"languages": {"xx": 1.0}}, {"languages": {"de": 1.0}}])
def test_missing_material_is_named(what: dict) -> None:
    with pytest.raises(InputError, match="no openings"):
        synthesize([0], replace(CONFIG, **what), MATERIAL, write)


@pytest.mark.parametrize(
    "wrong",
    [
        {"domains": {}},
        {"temperatures": {-1.0: 1.0}},
        {"temperatures": {0.0: -1.0}},
        {"systems": {"": 0.0}},
        {"second_turn": 1.5},
        {"user_lengths": ()},
        {"answer_lengths": (0,)},
    ],
)
def test_recipes_that_cannot_be_followed(wrong: dict) -> None:
    with pytest.raises(InputError):
        replace(CONFIG, **wrong)


def test_a_template_that_forgets_gets_no_second_turn() -> None:
    material = replace(MATERIAL, forms={"": replace(FORM, repeats=False)})
    conversations = synthesize(range(100), replace(CONFIG, second_turn=1.0), material, write)
    assert all(conversation.ids.count(92) == 1 for conversation in conversations)


def test_repeated_user_turns_are_not_answered() -> None:
    whole = synthesize(range(300), CONFIG, MATERIAL, write)
    seen = SeenTexts(Duplicates.EXACT)
    once = synthesize(range(300), CONFIG, MATERIAL, write, seen)
    texts = [MATERIAL.first_user_text(conversation) for conversation in once]
    assert len(set(texts)) == len(texts) < len(whole)
    assert set(texts) == {MATERIAL.first_user_text(conversation) for conversation in whole}
    known = SeenTexts(Duplicates.EXACT)
    for conversation in whole:
        known.add(MATERIAL.first_user_text(conversation))
    assert synthesize(range(300), CONFIG, MATERIAL, write, known) == []


def test_user_turns_are_cut_out_by_structure() -> None:
    ids = [90, 91, 1, 2, 99, 92, 5, 99, 93, 3, 99, 92, 6, 99]
    mask = [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert FORM.user_turns(ids, mask) == [[1, 2], [3]]


def test_shipped_openings_are_varied() -> None:
    openings = load_openings()
    assert set(openings) == {"chat", "math", "code"}
    assert all(len(set(texts)) == len(texts) >= 40 for texts in openings.values())
    assert any("\n" in text for text in openings["code"])
    assert any("from typing import" in text for text in openings["code"])
    assert any(text.rstrip().endswith('"""') for text in openings["code"])
    assert {"en", "de", "fr", "es"} <= set(opening_languages())
    for language in opening_languages():
        assert set(load_openings(language)) == {"chat", "math", "code"}
    with pytest.raises(InputError, match="known are: de, en"):
        load_openings("tlh")
