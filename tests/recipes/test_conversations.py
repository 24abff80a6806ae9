"""Self-written conversations: whole chunks, going on where it stopped, nothing half done."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dspark import LLM
from dspark.core import InputError, SamplingParams
from dspark.data.chat_format import ChatFormat
from dspark.data.chat_template import ChatTemplate
from dspark.data.conversation import Conversation, read_conversations
from dspark.data.record import record_path
from dspark.data.rendering import with_system
from dspark.recipes import WritingPlan, find_recipe, with_seed
from dspark.recipes import conversations as room
from dspark.recipes.conversations import Conversations, Writer

PLAN = replace(find_recipe("tiny").writing, chunk=4)


class Scribe:
    """Writes a conversation for every other number, at once."""

    target = "scribe"

    def __init__(self) -> None:
        self.known: list[Conversation] = []

    def remember(self, conversations: Iterable[Conversation]) -> None:
        """What is in the file."""
        self.known += conversations

    def write(self, numbers: Sequence[int]) -> list[Conversation]:
        """Those with even numbers come to something."""
        return [
            Conversation(ids=[number, 7], mask=[0, 1], domain="chat", temperature=0.0, complete=True)
            for number in numbers
            if number % 2 == 0
        ]


def fill(path: Path, wanted: int, plan: WritingPlan = PLAN, writer: object = None) -> Conversations:
    file = Conversations.open(path, plan, wanted=wanted)
    file.fill(writer or Scribe(), progress=lambda file: None)  # type: ignore[arg-type]
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.jsonl"


def test_what_the_engine_writes_is_well_formed_and_repeatable(path: Path, llm: LLM) -> None:
    plan = replace(PLAN, chunk=16, top_k=264)
    file = fill(path, 1, plan, Writer(llm, plan))
    read = list(read_conversations(path))
    assert len(read) == file.count >= 1
    end = llm.loaded.tokenizer.eos_token_id
    for conversation in read:
        text = llm.loaded.tokenizer.decode(conversation.ids)
        assert text.startswith("<|start|>user\n")
        assert any(conversation.mask)
        assert conversation.complete == (conversation.ids[-1] == end)
    again = Writer(llm, plan).write(range(file.next - 16, file.next))
    assert file.tokens == sum(len(conversation.ids) for conversation in read)
    assert again == read[-len(again) :]


def test_at_least_as_many_as_wanted(path: Path) -> None:
    file = fill(path, 3)
    assert (file.count, file.next) == (4, 8)
    assert [conversation.ids[0] for conversation in read_conversations(path)] == [0, 2, 4, 6]


def test_going_on_gives_what_one_run_gives(tmp_path: Path) -> None:
    fill(tmp_path / "once.jsonl", 5)
    fill(tmp_path / "twice.jsonl", 1)
    fill(tmp_path / "twice.jsonl", 5)
    assert (tmp_path / "once.jsonl").read_bytes() == (tmp_path / "twice.jsonl").read_bytes()


def test_size_in_tokens(path: Path) -> None:
    file = Conversations.open(path, PLAN, wanted_tokens=7)
    file.fill(Scribe(), progress=lambda file: None)  # type: ignore[arg-type]
    assert (file.count, file.tokens) == (4, 8)
    assert Conversations.open(path, PLAN, wanted_tokens=8).share == 1
    with pytest.raises(InputError, match="in conversations or in tokens"):
        Conversations.open(path, PLAN)


def test_a_file_begun_before_there_were_these_options(path: Path) -> None:
    fill(path, 3)
    record = json.loads(record_path(path).read_text())
    for name in ("languages", "systems", "thinking", "duplicates"):
        del record["plan"]["synthesis"][name]
    del record["tokens"]
    record_path(path).write_text(json.dumps(record))
    file = fill(path, 5)
    assert (file.count, file.tokens) == (6, 12)
    record_path(path).write_text(json.dumps(record))
    foreign = replace(PLAN, synthesis=replace(PLAN.synthesis, languages={"de": 1.0}))
    with pytest.raises(InputError, match="another recipe"):
        Conversations.open(path, foreign, wanted=9)


def test_what_is_in_the_file_is_known_when_it_goes_on(path: Path) -> None:
    fill(path, 3)
    scribe = Scribe()
    fill(path, 5, writer=scribe)
    assert [conversation.ids[0] for conversation in scribe.known] == [0, 2, 4, 6]


@pytest.mark.pitfall(37)
def test_what_is_generated_is_rendered_by_the_one_code_path(path: Path, llm: LLM) -> None:
    systems = {"": 1.0, "Be brief.": 1.0}
    plan = replace(PLAN, chunk=16, top_k=264, synthesis=replace(PLAN.synthesis, systems=systems))
    fill(path, 4, plan, Writer(llm, plan))
    tokenizer, found = llm.loaded.tokenizer, set()
    template = ChatTemplate.of(tokenizer)
    for conversation in read_conversations(path):
        prompt = conversation.ids[: conversation.mask.index(1)]
        form = {s: ChatFormat.of(tokenizer, system=s) for s in systems}
        system = next(s for s in systems if tuple(prompt[: len(form[s].opening)]) == form[s].opening)
        user = tokenizer.decode(form[system].user_turns(conversation.ids, conversation.mask)[0])
        messages = with_system(system, [{"role": "user", "content": user}])
        served = llm.chat(messages, SamplingParams(max_tokens=1), progress=False)[0].prompt_token_ids
        assert list(served) == template.prompt(messages)
        assert tokenizer.decode(prompt) == tokenizer.decode(served)
        found.add(system)
    assert len(found) == 2


def test_a_full_file_is_left_alone(path: Path) -> None:
    fill(path, 3)
    before = path.read_bytes()
    fill(path, 2)
    assert path.read_bytes() == before


def test_what_a_kill_left_half_written_is_written_again(path: Path) -> None:
    fill(path, 1)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"ids": [1, 2')
    file = fill(path, len(whole.splitlines()) + 1)
    assert path.read_bytes().startswith(whole)
    assert len(list(read_conversations(path))) == file.count


def test_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = room.append_conversations

    def full(place: Path, written: list) -> None:
        with place.open("a") as file:
            file.write("half a li")
        raise OSError(errno.ENOSPC, "No space left on device", str(place))

    monkeypatch.setattr(room, "append_conversations", full)
    with pytest.raises(OSError, match="No space left"):
        fill(path, 1)
    assert list(path.parent.iterdir()) == []
    monkeypatch.setattr(room, "append_conversations", honest)
    fill(path, 1)
    whole = path.read_bytes()
    monkeypatch.setattr(room, "append_conversations", full)
    with pytest.raises(OSError, match=r"No space left.*holds 2 conversations, the same command goes on from there"):
        fill(path, 50)
    assert path.read_bytes() == whole
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["c.jsonl", "c.record.json"]


def test_ctrl_c_says_where_it_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 1)
    monkeypatch.setattr(Scribe, "write", lambda self, numbers: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt, match="the same command goes on from there"):
        fill(path, 50)


def test_files_that_cannot_be_gone_on_with(path: Path, tmp_path: Path) -> None:
    path.write_text("precious\n")
    with pytest.raises(InputError, match="choose another name"):
        Conversations.open(path, PLAN, wanted=1)
    assert path.read_text() == "precious\n"
    path.unlink()
    fill(path, 1)
    with pytest.raises(InputError, match="another recipe or seed"):
        Conversations.open(path, with_seed(PLAN, 9), wanted=1)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="is shorter than"):
        Conversations.open(path, PLAN, wanted=1)
    record_path(path).write_text("{}")
    with pytest.raises(InputError, match="no record of conversations"):
        Conversations.open(path, PLAN, wanted=1)
    with pytest.raises(InputError, match="there is no folder"):
        Conversations.open(tmp_path / "no" / "c.jsonl", PLAN, wanted=1)
    with pytest.raises(InputError, match=">= 1"):
        Conversations.open(path, PLAN, wanted=0)


def test_another_target_cannot_go_on(path: Path) -> None:
    fill(path, 1)
    record = json.loads(record_path(path).read_text())
    record_path(path).write_text(json.dumps(record | {"target": "someone else"}))
    with pytest.raises(InputError, match="was begun with target 'someone else'"):
        fill(path, 50)


def test_a_target_that_never_ends_a_turn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Scribe, "write", lambda self, numbers: [])
        with pytest.raises(InputError, match=r"raise synthesis\.user_lengths"):
            fill(path, 1)
    fill(path, 1)
    monkeypatch.setattr(Scribe, "write", lambda self, numbers: [])
    with pytest.raises(InputError, match="all came before"):
        fill(path, 50)


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_chunk_without_its_record_is_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fails(place: Path, text: str) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(room, "write_whole", fails)
        with pytest.raises(type(failure)):
            fill(path, 1)
    assert list(path.parent.iterdir()) == []
    fill(path, 1)
    whole = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(room, "write_whole", fails)
        with pytest.raises(type(failure)):
            fill(path, 50)
    assert path.read_bytes() == whole
    assert fill(path, 3).count >= 3


def test_lines_that_are_no_conversations(path: Path) -> None:
    good = b'"mask": [0, 1], "domain": "chat", "temperature": 0.0, "complete": true}\n'
    lines = (b"\xff\xfe\n", b"[]\n", b'{"ids": ["a", 1], ' + good, b'{"ids": [1, -1], ' + good, b'{"ids": 3, ' + good)
    for line in lines:
        path.write_bytes(line)
        with pytest.raises(InputError, match="line 1: not a conversation"):
            list(read_conversations(path))
