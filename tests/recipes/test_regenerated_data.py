"""Given prompts answered by our own engine; the file that grows; the sources."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dspark import LLM
from dspark.core import InputError
from dspark.data.chat_template import ChatTemplate
from dspark.data.conversation import Conversation, read_conversations
from dspark.data.duplicates import Duplicates
from dspark.data.prompt_source import PromptReader, open_source
from dspark.data.prompt_turns import PromptTurns
from dspark.data.record import record_path
from dspark.recipes import regenerated_file as room
from dspark.recipes.engine_answers import EngineAnswers
from dspark.recipes.regenerated_file import RegeneratedFile
from dspark.recipes.regeneration import regenerate
from dspark.recipes.regeneration_plan import Outcome, RegenerationPlan

from ..data.templates import CHATML, tokenizer_with

PLAN = RegenerationPlan(domain="test", answer_tokens=24, max_tokens=200, temperatures={0.7: 0.5, 1.0: 0.5}, seed=3)
IDENTITY = {"source": {"file": "p"}, "plan": {"seed": 3}, "target": "t", "writer": "engine"}


class Clerk:
    """Answers at once, two prompts at a time; lines above ``stop`` raise."""

    template = ChatTemplate.of(tokenizer_with(CHATML))

    def __init__(self, stop: int = 10**9, error: BaseException | None = None) -> None:
        self.stop, self.error, self.asked = stop, error, list[int]()

    def run(self, prompts: Iterator[PromptTurns], commit: Callable[[Sequence[Outcome]], None]) -> None:
        """Line 5 fails."""
        batch: list[Outcome] = []
        for turns in prompts:
            if turns.line > self.stop:
                raise self.error or KeyboardInterrupt
            self.asked.append(turns.line)
            written = Conversation(
                ids=[turns.line, 7], mask=[0, 1], domain="d", temperature=0.0, complete=True, line=turns.line
            )
            failed = turns.line == 5
            batch.append(
                Outcome(line=turns.line, reason="no") if failed else Outcome(line=turns.line, conversations=(written,))
            )
            if len(batch) == 2:
                commit(batch)
                batch = []
        commit(batch)


def prompts(path: Path, rows: Sequence[Any]) -> PromptReader:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return PromptReader(source=open_source(str(path)))


def turns(count: int) -> list[dict[str, list[str]]]:
    return [{"turns": [f"question {number}"]} for number in range(1, count + 1)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def by_engine(
    llm: LLM, reader: PromptReader, out: Path, plan: RegenerationPlan = PLAN, chunk: int = 4
) -> RegeneratedFile:
    file = RegeneratedFile.open(out, IDENTITY)
    regenerate(reader, EngineAnswers(llm, plan, chunk=chunk), file)
    return file


@pytest.mark.pitfall(37)
def test_the_engine_answers_behind_the_very_prompt_it_serves(llm: LLM, tmp_path: Path, out: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    user = {"role": "user", "content": "what is <|start|>assistant\n?"}
    reader = prompts(tmp_path / "p.jsonl", [{"messages": [system, user]}, {"messages": [user]}])
    by_engine(llm, reader, out)
    served = llm.chat([[system, user], [user]], progress=False)
    for conversation, output in zip(read_conversations(out), served, strict=True):
        prompt = conversation.ids[: conversation.mask.index(1)]
        assert prompt == list(output.prompt_token_ids)
        assert conversation.complete == (conversation.ids[-1] == llm.loaded.tokenizer.eos_token_id)


def test_multi_turn_by_the_engine(llm: LLM, tmp_path: Path, out: Path) -> None:
    rows = [{"turns": ["one", "two", "three"]}, {"conversations": [{"from": "human", "value": "x"}], "domain": "math"}]
    file = by_engine(llm, prompts(tmp_path / "p.jsonl", rows * 6), out, replace(PLAN, answer_tokens=100))
    tokenizer = llm.loaded.tokenizer
    found = list(read_conversations(out))
    assert {conversation.domain for conversation in found} == {"test", "math"}
    for conversation in found:
        assert len(conversation.ids) <= 200
        text = tokenizer.decode(conversation.ids)
        assert text.count("<|start|>user\n") <= 3
        if not conversation.complete:
            assert conversation.ids[-1] != tokenizer.eos_token_id
    assert file.count == len(found)


def test_seeds_belong_to_lines(llm: LLM, tmp_path: Path, out: Path) -> None:
    """Stopped after any chunk and gone on with: the same bytes as in one go."""
    reader = prompts(tmp_path / "p.jsonl", turns(12))
    by_engine(llm, reader, out)
    whole = out.read_bytes()
    other = tmp_path / "other.jsonl"
    by_engine(llm, replace(reader, limit=4), other)
    assert len(list(read_conversations(other))) == 4
    by_engine(llm, reader, other)
    assert other.read_bytes() == whole


def test_a_prompt_too_long_is_a_failure(llm: LLM, tmp_path: Path, out: Path) -> None:
    file = by_engine(llm, prompts(tmp_path / "p.jsonl", [{"turns": ["x" * 300]}, {"turns": ["y"]}]), out)
    assert (file.count, file.failed) == (1, 1)
    assert "no answer fits" in json.loads(file.failures.read_text())["reason"]


def test_stopped_and_gone_on_with(tmp_path: Path, out: Path) -> None:
    reader = prompts(tmp_path / "p.jsonl", turns(9))
    with pytest.raises(KeyboardInterrupt, match="holds 5 conversations, the same command goes on from there"):
        regenerate(reader, Clerk(stop=7), RegeneratedFile.open(out, IDENTITY))
    clerk = Clerk()
    regenerate(reader, clerk, RegeneratedFile.open(out, IDENTITY))
    assert clerk.asked == [7, 8, 9]
    assert [conversation.line for conversation in read_conversations(out)] == [1, 2, 3, 4, 6, 7, 8, 9]
    file = RegeneratedFile.open(out, IDENTITY, retry_failures=True)
    clerk = Clerk()
    regenerate(reader, clerk, file)
    assert clerk.asked == [5]


def test_full_disk(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = prompts(tmp_path / "p.jsonl", turns(9))
    honest = room.append_lines

    def full(path: Path, lines: Sequence[str]) -> None:
        with path.open("a") as file:
            file.write("half a li")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(room, "append_lines", full)
        with pytest.raises(OSError, match="No space left") as first:
            regenerate(reader, Clerk(), RegeneratedFile.open(out, IDENTITY))
    assert first.value.filename == str(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.jsonl"]
    file = RegeneratedFile.open(out, IDENTITY)
    regenerate(replace(reader, limit=4), Clerk(), file)
    whole = out.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(room, "append_lines", full)
        with pytest.raises(OSError, match=r"No space left.*holds 4 conversations, the same command goes on"):
            regenerate(reader, Clerk(), RegeneratedFile.open(out, IDENTITY))
    assert out.read_bytes() == whole
    assert not file.failures.exists() or file.failures.read_text() == ""
    monkeypatch.setattr(room, "append_lines", honest)
    regenerate(reader, Clerk(), RegeneratedFile.open(out, IDENTITY))
    assert len(list(read_conversations(out))) == 8


def test_files_that_cannot_be_gone_on_with(tmp_path: Path, out: Path) -> None:
    regenerate(prompts(tmp_path / "p.jsonl", turns(3)), Clerk(), RegeneratedFile.open(out, IDENTITY))
    for changed, said in (
        ({"target": "u"}, "another target"),
        ({"plan": {"seed": 4}}, "another plan seed"),
        ({"writer": "gpt"}, "another writer"),
    ):
        with pytest.raises(InputError, match=said):
            RegeneratedFile.open(out, IDENTITY | changed)
    whole = out.read_bytes()
    out.write_bytes(whole[:-4])
    with pytest.raises(InputError, match="is shorter than"):
        RegeneratedFile.open(out, IDENTITY)
    out.write_bytes(whole)
    record_path(out).write_text("{}")
    with pytest.raises(InputError, match="is no record"):
        RegeneratedFile.open(out, IDENTITY)
    record_path(out).unlink()
    with pytest.raises(InputError, match="exists, but not"):
        RegeneratedFile.open(out, IDENTITY)
    with pytest.raises(InputError, match="there is no folder"):
        RegeneratedFile.open(tmp_path / "no" / "c.jsonl", IDENTITY)


BAD = {
    "not JSON": '{"turns": ["a"',
    "expected a JSON object": "[1]",
    "turn 2 is empty": {"turns": ["a", " "]},
    "there is no user turn": {"turns": []},
    "must be a list": {"turns": "a"},
    "unknown role 'wizard'": {"messages": [{"role": "wizard", "content": "a"}]},
    "unknown role None": {"conversations": [{"value": "a"}]},
    "turn 1 must be a text": {"messages": [{"role": "user", "content": 3}]},
    "holds more than text": {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    "not the first turn": {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]},
    "got the fields text": {"text": "a"},
    "no Unicode": '{"turns": ["\\ud800"]}',
}


@pytest.mark.parametrize("said", BAD)
def test_bad_prompts_are_named_by_file_and_line(said: str, tmp_path: Path, out: Path) -> None:
    reader = prompts(tmp_path / "p.jsonl", [*turns(2), "", BAD[said], *turns(1)])
    with pytest.raises(InputError, match=rf"p\.jsonl, line 4: .*{said}"):
        reader.count()
    with pytest.raises(InputError, match=r"p\.jsonl, line 4"):
        regenerate(reader, Clerk(), RegeneratedFile.open(out, IDENTITY))
    assert [conversation.line for conversation in read_conversations(out)] == [1, 2]
    file = RegeneratedFile.open(out, IDENTITY)
    regenerate(replace(reader, duplicates=Duplicates.KEEP), Clerk(stop=99), file, skip_bad=True)
    assert (file.count, file.failed) == (2, 2)  # line 5 is one that the clerk fails
    assert json.loads(file.failures.read_text().splitlines()[0])["line"] == 4
    again = RegeneratedFile.open(out, IDENTITY)
    regenerate(reader, Clerk(), again, skip_bad=True)
    assert (again.count, again.failed) == (2, 2)


def test_the_three_forms_are_read_alike(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": "old"}
    rows = [
        {"turns": ["a", "b"], "domain": "math"},
        {
            "messages": [
                {"role": "user", "content": "a"},
                said,
                {"role": "user", "content": [{"type": "text", "text": "b"}]},
            ]
        },
        {
            "conversations": [
                {"from": "human", "value": "a"},
                {"from": "gpt", "value": ""},
                {"from": "human", "value": "b"},
            ]
        },
        {
            "conversations": [
                {"from": "system", "value": "s"},
                {"from": "user", "value": "a"},
                {"from": "user", "value": "b"},
            ]
        },
    ]
    found = list(replace(prompts(tmp_path / "p.jsonl", rows), duplicates=Duplicates.KEEP))
    assert {turns.users for turns in found} == {("a", "b")}
    assert [turns.system for turns in found] == ["", "", "", "s"]
    assert [turns.domain for turns in found] == ["math", None, None, None]


def test_duplicates_and_columns(tmp_path: Path) -> None:
    rows = [{"q": "How old is the oak?"}, {"q": "How old is the oak?"}, {"q": "how OLD is the  oak"}, {"q": "Why?"}]
    reader = replace(prompts(tmp_path / "p.jsonl", rows), column="q")
    lines = {kind: [turns.line for turns in replace(reader, duplicates=kind)] for kind in Duplicates}
    assert lines == {Duplicates.KEEP: [1, 2, 3, 4], Duplicates.EXACT: [1, 3, 4], Duplicates.NEAR: [1, 4]}
    assert (reader.count(), reader.left_out) == (3, 1)
    with pytest.raises(InputError, match=r"line 1: there is no field 'p'; it has q"):
        replace(reader, column="p").count()


def test_data_sets(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in turns(3)))
    reader = PromptReader(source=open_source(f"hf:{folder}"))
    assert [(turns.line, turns.users) for turns in reader] == [(n, (f"question {n}",)) for n in (1, 2, 3)]
    assert reader.count() is None
    with pytest.raises(InputError, match="cannot read the data set"):
        list(PromptReader(source=open_source(f"hf:{folder}", split="nope")))
    with pytest.raises(InputError, match="there is no file"):
        open_source(str(tmp_path / "missing.jsonl"))


def test_without_the_optional_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark.data import prompt_source
    from dspark.recipes import endpoint

    monkeypatch.setattr(prompt_source, "find_spec", lambda name: None)
    monkeypatch.setattr(endpoint, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'dspark\[hub\]'"):
        open_source("hf:some/set")
    with pytest.raises(InputError, match=r"pip install 'dspark\[endpoint\]'"):
        endpoint.openai_library()
