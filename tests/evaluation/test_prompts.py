"""Reading prompt files: three forms, strict about everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.evaluation import PromptSet, builtin_prompt_sets, load_prompt_sets, load_prompts

from .tiny_pair import tiny_tokenizer


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_the_first_of_several_turns_is_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "mt.jsonl", {"turns": ["first", "second"]})
    assert load_prompts(str(path)) == PromptSet(domain="mt", prompts=(({"role": "user", "content": "first"},),))


def test_messages_end_with_the_last_user_message(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]
    path = write(tmp_path / "m.jsonl", {"messages": messages})
    assert load_prompts(str(path)).prompts == (tuple(messages[:2]),)


def test_a_plain_prompt_keeps_away_from_the_template(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "abc"}, "", {"turns": ["abc"]})
    ids = load_prompts(str(path)).token_ids(tiny_tokenizer())
    texts = [tiny_tokenizer().decode(entry) for entry in ids]
    assert texts == ["abc", "<|start|>user\nabc<|end|>\n<|start|>assistant\n"]


def test_n_takes_the_first_n_and_never_fewer(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "a"}, {"prompt": "b"})
    assert load_prompts(f"{path}:1").prompts == ("a",)
    with pytest.raises(InputError, match="has 2 prompts, 3 were asked for"):
        load_prompts(f"{path}:3")


@pytest.mark.parametrize("tail", [":0", ":-1", ":x", ":"])
def test_n_must_be_a_positive_number(tmp_path: Path, tail: str) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "a"})
    with pytest.raises(InputError, match="FILE:N with N >= 1"):
        load_prompts(f"{path}{tail}")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "3",
        {},
        {"turns": []},
        {"turns": [" "]},
        {"turns": "text"},
        {"prompt": ""},
        {"prompt": 3},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": "a"}]},
        {"messages": [{"role": "user"}]},
        {"question": "q"},
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "fine"}, line)
    with pytest.raises(InputError, match=r"p\.jsonl, line 2: "):
        load_prompts(str(path))


def test_files_that_are_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read prompts"):
        load_prompts(str(tmp_path / "missing.jsonl"))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read prompts"):
        load_prompts(str(tmp_path / "binary.jsonl"))
    with pytest.raises(InputError, match="holds no prompts"):
        load_prompts(str(write(tmp_path / "empty.jsonl", "", " ")))


def test_domains_must_differ(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    files = [write(tmp_path / "p.jsonl", {"prompt": "a"}), write(tmp_path / "other" / "p.jsonl", {"prompt": "b"})]
    with pytest.raises(InputError, match="two prompt files are called 'p'"):
        load_prompt_sets([str(file) for file in files])


def test_built_in_prompts() -> None:
    sets = builtin_prompt_sets(2)
    assert [entry.domain for entry in sets] == ["math", "code", "chat"]
    assert all(len(entry.prompts) == 2 for entry in sets)
    assert all(len(entry.prompts) >= 4 for entry in builtin_prompt_sets())
