"""``dspark generate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark import LLM, SamplingParams
from dspark.engine import EngineCore, StepOutput

from .conftest import Dspark


@pytest.fixture(scope="module")
def greedy_text(target_dir: Path) -> str:
    llm = LLM(str(target_dir), dtype="float32")
    return llm.generate("hello", SamplingParams(temperature=0.0, max_tokens=12))[0].outputs[0].text


def test_raw_prompt(on_target: Dspark, greedy_text: str) -> None:
    result = on_target("generate", "hello", "--raw", "--max-tokens", 12)
    assert (result.exit_code, result.stdout) == (0, greedy_text + "\n")
    assert result.stderr == ""


def test_prompt_from_stdin(on_target: Dspark, greedy_text: str) -> None:
    assert on_target("generate", "--raw", "--max-tokens", 12, stdin="hello\n").stdout == greedy_text + "\n"
    assert on_target("generate", "-", "--raw", "--max-tokens", 12, stdin="hello").stdout == greedy_text + "\n"


@pytest.mark.parametrize("drafter", ["ngram", "tiny"])
def test_a_drafter_changes_nothing(on_target: Dspark, drafter_dir: Path, greedy_text: str, drafter: str) -> None:
    name = drafter_dir if drafter == "tiny" else drafter
    result = on_target("generate", "hello", "--raw", "--max-tokens", 12, "--drafter", name)
    assert result.stdout == greedy_text + "\n"


def test_chat_is_the_default_where_there_is_a_template(on_target: Dspark, greedy_text: str) -> None:
    through, raw = (on_target("generate", "hello", "--json", *words) for words in ((), ("--raw",)))
    assert json.loads(raw.stdout)["prompt_tokens"] == len("hello")
    assert json.loads(through.stdout)["prompt_tokens"] > len("hello") + 10


def test_json_counts_match(on_target: Dspark, drafter_dir: Path) -> None:
    words = ("--json", "--raw", "--n", 2, "--max-tokens", 9, "--seed", 1, "--temperature", 0.8)
    result = on_target("generate", "abc", "de", *words, "--drafter", drafter_dir)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(a["prompt_index"], a["index"]) for a in answers] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for answer in answers:
        assert len(answer["token_ids"]) == len(answer["origins"]) <= 9
        assert answer["accepted"] <= answer["verified"] <= answer["drafted"]
    again = on_target("generate", "abc", "de", *words, "--drafter", drafter_dir)
    assert [json.loads(line)["token_ids"] for line in again.stdout.splitlines()] == [a["token_ids"] for a in answers]


def test_several_answers_are_told_apart(on_target: Dspark) -> None:
    result = on_target("generate", "abc", "de", "--raw", "--max-tokens", 3)
    heads = [line for line in result.stdout.splitlines() if line.startswith("---")]
    assert heads == ["--- prompt 1, answer 1 ---", "--- prompt 2, answer 1 ---"]


def test_stop_string(on_target: Dspark, greedy_text: str) -> None:
    stop = greedy_text[5]
    result = on_target("generate", "hello", "--raw", "--max-tokens", 12, "--stop", stop)
    assert result.stdout == greedy_text[: greedy_text.index(stop)] + "\n"


def test_ctrl_c_in_the_middle(on_target: Dspark, greedy_text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays on the screen; the engine is left empty."""
    honest, engines = EngineCore.step, []

    def step(self: EngineCore) -> list[StepOutput]:
        engines.append(self)
        if len(engines) == 6:
            raise KeyboardInterrupt
        return honest(self)

    monkeypatch.setattr(EngineCore, "step", step)
    result = on_target("generate", "hello", "--raw", "--max-tokens", 12)
    assert (result.exit_code, result.stderr) == (130, "dspark: interrupted\n")
    assert result.stdout.endswith("\n")
    assert greedy_text.startswith(result.stdout.rstrip("\n"))
    assert not engines[0].has_unfinished()
