"""Self-written conversations: structure, masks, limits, continuation of a stopped run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.data.chat_format import ChatFormat
from dspark.data.conversation import Conversation, append_conversations, read_conversations
from dspark.data.openings import load_openings
from dspark.data.synthesis import Continuation, SynthesisConfig, synthesize

FORM = ChatFormat(opening=(90, 91), to_answer=(99, 92), to_user=(99, 93), end=99)
OPENINGS = {"chat": [[1], [2, 3]], "math": [[4]], "code": [[5, 6]]}


def write(jobs: Sequence[Continuation]) -> list[list[int]]:
    """Writes 10 + length mod 5 as often as its seed says; runs into its limit for some seeds."""
    found = []
    for job in jobs:
        length = job.seed % 40
        found.append([*[10 + length % 5] * length, 99][: job.max_tokens])
    return found


CONFIG = SynthesisConfig(user_lengths=(16, 30), answer_lengths=(20, 35), max_tokens=100, second_turn=0.5)


def test_masks_cover_answers_and_nothing_else() -> None:
    conversations = synthesize(range(200), CONFIG, FORM, OPENINGS, write)
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
    conversations = synthesize(range(200), CONFIG, FORM, OPENINGS, write)
    assert {c.complete for c in conversations} == {True, False}
    for conversation in conversations:
        assert (conversation.ids[-1] == 99) == conversation.complete
        assert len(conversation.ids) <= CONFIG.max_tokens


def test_a_number_gives_the_same_conversation_in_any_chunk() -> None:
    whole = synthesize(range(20), CONFIG, FORM, OPENINGS, write)
    parts = synthesize(range(7), CONFIG, FORM, OPENINGS, write) + synthesize(
        range(7, 20), CONFIG, FORM, OPENINGS, write
    )
    assert whole == parts


def test_unknown_domains_are_refused() -> None:
    with pytest.raises(InputError, match="poetry"):
        synthesize([0], SynthesisConfig(domains={"poetry": 1.0}), FORM, OPENINGS, write)


def test_files_round_trip_and_name_the_wrong_line(tmp_path: Path) -> None:
    path = tmp_path / "conversations.jsonl"
    conversations = synthesize(range(5), CONFIG, FORM, OPENINGS, write)
    append_conversations(path, conversations[:2])
    append_conversations(path, conversations[2:])
    assert list(read_conversations(path)) == conversations
    with path.open("a") as file:
        file.write('{"ids": [1]}\n')
    with pytest.raises(InputError, match=f"line {len(conversations) + 1}"):
        list(read_conversations(path))
    with pytest.raises(InputError, match="one mask entry per token"):
        Conversation(ids=[1, 2], mask=[1], domain="chat", temperature=0.0, complete=True)


def test_shipped_openings_are_varied() -> None:
    openings = load_openings()
    assert set(openings) == {"chat", "math", "code"}
    assert all(len(set(texts)) == len(texts) >= 40 for texts in openings.values())
    assert any("\n" in text for text in openings["code"])


class Tokenizer:
    """One id per character."""

    def __init__(self, template: str) -> None:
        self.template = template

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: object) -> str:
        return self.template.join(turn["content"] for turn in conversation)

    def encode(self, text: str, **options: object) -> list[int]:
        return [ord(character) for character in text]


@pytest.mark.pitfall(36)
def test_format_comes_from_the_structure_of_the_template() -> None:
    form = ChatFormat.of(Tokenizer("#>"))
    assert (form.to_answer, form.to_user, form.end) == ((35, 62), (35, 62), 35)


def test_a_template_that_changes_contents_is_refused() -> None:
    class Upper(Tokenizer):
        def apply_chat_template(self, conversation: list[dict[str, str]], **options: object) -> str:
            return super().apply_chat_template(conversation).upper()

    with pytest.raises(InputError, match="verbatim"):
        ChatFormat.of(Upper("#>"))
