"""The verbs of ``dspark data`` that make conversations and look at them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from dspark.cli import data_stats
from dspark.cli.data_synthesize import shares
from dspark.data.conversation import read_conversations
from dspark.recipes.samples import Sample

from ..recipes.fake_openai import Reply, serving
from .conftest import Dspark, one_line


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps({"turns": [f"question {number}"]}) + "\n" for number in range(4)))
    return path


def test_synthesize_with_everything(on_target: Dspark, dspark: Dspark, tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"
    words = ("data", "synthesize", out, "--tokens", 200, "--recipe", "tiny", "--seed", 3, "--languages", "de:1")
    words += ("--system", "1:", "--system", "Be brief.", "--temperatures", "0:1", "--domains", "code:1")
    made = on_target(*words)
    assert made.exit_code == 0, made.output
    found = list(read_conversations(out))
    assert sum(len(conversation.ids) for conversation in found) >= 200
    assert {(conversation.domain, conversation.temperature) for conversation in found} == {("code", 0.0)}
    again = on_target(*words)
    assert (again.exit_code, len(list(read_conversations(out)))) == (0, len(found))
    assert "another recipe" in one_line(on_target(*words, "--duplicates", "keep"))
    looked = json.loads(dspark("data", "stats", out, "--json").stdout)
    assert looked["conversations"] == len(found)
    assert looked["target"] == "tiny-target"


def test_wrong_words_for_synthesize(dspark: Dspark, tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"
    for words, said in (
        ((), "in conversations or in tokens"),
        (("--tokens", 0), "must be >= 1, got 0"),
        (("--tokens", 9, "--temperatures", "warm:1"), "synthesis.temperatures must be"),
        (("--tokens", 9, "--temperatures", "-1:1"), ">= 0"),
        (("--tokens", 9, "--duplicates", "maybe"), "one of keep, exact, near"),
    ):
        assert said in one_line(dspark("data", "synthesize", out, *words))


def test_regenerate_by_the_engine(on_target: Dspark, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    words = ("data", "regenerate", prompts, out, "--answer-tokens", 8, "--temperatures", "1:1", "--in-flight", 2)
    first = on_target(*words, "--limit", 2)
    assert first.exit_code == 0, first.output
    assert "out.jsonl holds" in first.stderr
    made = on_target(*words)
    assert made.exit_code == 0, made.output
    assert {conversation.line for conversation in read_conversations(out)} <= {1, 2, 3, 4}
    assert "another plan answer_tokens" in one_line(on_target(*words, "--answer-tokens", 9))


def test_bad_prompts(dspark: Dspark, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"turns": ["a"]}\n{"messages": [{"role": "wizard", "content": "b"}]}\n')
    result = dspark("data", "regenerate", path, tmp_path / "out.jsonl", "--target", "never-loaded")
    assert result.exit_code == 1
    assert "p.jsonl, line 2: turn 1 has the unknown role 'wizard'" in one_line(result)
    assert "there is no file" in one_line(dspark("data", "regenerate", tmp_path / "no", tmp_path / "out.jsonl"))


def test_regenerate_by_an_endpoint(dspark: Dspark, prompts: Path, target_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    out = tmp_path / "out.jsonl"

    def behave(messages: list[dict[str, str]], times: int) -> Reply:
        refused = messages[-1]["content"] == "question 2"
        return Reply(status=422) if refused else Reply("fine", prompt_tokens=1)

    with serving(behave) as fake:
        made = dspark("data", "regenerate", prompts, out, "--endpoint", fake.url, "--target", target_dir)
    assert made.exit_code == 0, made.output
    assert "holds 3 conversations" in made.stderr
    assert "1 prompt failed, see" in made.stderr
    assert "for 3 of 3 answers the endpoint counted another prompt length" in made.stderr
    looked = dspark("data", "stats", out, "--target", target_dir, "--samples", 1)
    assert looked.exit_code == 0, looked.output
    assert "⟦fine<|end|>⟧" in looked.stdout


def test_stats_of_what_is_no_conversation(dspark: Dspark, tmp_path: Path, target_dir: Path) -> None:
    path = tmp_path / "c.jsonl"
    assert "there is no file" in one_line(dspark("data", "stats", path))
    path.write_text('{"ids": [1]}\n')
    assert "c.jsonl, line 1: not a conversation" in one_line(dspark("data", "stats", path))
    path.write_text('{"ids": [999], "mask": [1], "domain": "d", "temperature": 0.0, "complete": true}\n')
    assert "has the token 999" in one_line(dspark("data", "stats", path, "--target", target_dir))
    (tmp_path / "c.record.json").write_text('{"target": "other"}')
    assert "hold tokens of 'other'" in one_line(dspark("data", "stats", path, "--target", target_dir))


def test_shares_of_system_prompts() -> None:
    assert shares(["Be brief."]) == {"Be brief.": 1.0}
    assert shares(["0.5:", ".25: You: a pirate", "No share: here"]) == {
        "": 0.5,
        "You: a pirate": 0.25,
        "No share: here": 1.0,
    }


def test_learnt_tokens_have_a_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="standard", _environ={})
    monkeypatch.setattr(data_stats, "out", lambda: console)
    data_stats._print_sample(Sample(name="one", pieces=(("asked ", False), ("answered", True))))
    assert "\x1b[32manswered\x1b[0m" in screen.getvalue()
    assert "⟦" not in screen.getvalue()
