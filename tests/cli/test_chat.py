"""``dspark chat``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dspark import LLM, SamplingParams
from dspark.cli.chat import Conversation
from dspark.engine import StepOutput

from ..evaluation.tiny_pair import save_tiny_target
from .conftest import Dspark, one_line

PARAMS = SamplingParams(temperature=0.0, max_tokens=6)


@pytest.fixture(scope="module")
def llm(target_dir: Path) -> LLM:
    return LLM(str(target_dir), dtype="float32", max_requests=1)


def answer(llm: LLM, *turns: str) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": turn} for place, turn in enumerate(turns)]
    return llm.chat(messages, PARAMS)[0].outputs[0].text


def test_turns_add_up_until_reset(on_target: Dspark, llm: LLM) -> None:
    result = on_target("chat", "--max-tokens", 6, stdin="hi\nthere\n\n/reset\nhi\n/quit\nnever\n")
    first = answer(llm, "hi")
    second = answer(llm, "hi", first, "there")
    assert result.stdout == f"{first}\n{second}\n{first}\n"
    assert (result.exit_code, result.stderr) == (0, "")


def test_end_of_input_leaves(on_target: Dspark, llm: LLM) -> None:
    assert on_target("chat", "--max-tokens", 6, stdin="hi").stdout == answer(llm, "hi") + "\n"


def test_unknown_commands_are_no_turns(on_target: Dspark) -> None:
    result = on_target("chat", stdin="/exit\n")
    assert result.stdout == ""
    assert "there is no command /exit" in result.stderr


def test_system_message(llm: LLM) -> None:
    conversation = Conversation(llm, PARAMS, "be kind")
    conversation.answer("hi")
    assert [turn["role"] for turn in conversation.turns] == ["system", "user", "assistant"]


def test_a_turn_that_does_not_fit_is_forgotten(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    conversation = Conversation(llm, PARAMS, None)
    conversation.answer("x" * 600)
    assert conversation.turns == []
    assert "/reset" in capsys.readouterr().err


def test_ctrl_c_stops_the_answer_and_keeps_what_is_there(llm: LLM) -> None:
    closed: list[bool] = []

    def stream(turns: object, params: object) -> Iterator[StepOutput]:
        try:
            yield StepOutput(request_id="r", index=0, text="some", token_ids=(5,), origins=(), pieces=())
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    conversation = Conversation(SimpleNamespace(stream=stream), PARAMS, None)  # type: ignore[arg-type]
    conversation.answer("hi")
    assert conversation.turns[-1] == {"role": "assistant", "content": "some"}
    assert closed == [True]


def test_a_model_without_a_template_cannot_chat(dspark: Dspark, tmp_path: Path) -> None:
    place = save_tiny_target(tmp_path / "bare")
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        (place / name).unlink(missing_ok=True)
    result = dspark("chat", "--target", place, stdin="hi\n")
    assert result.exit_code == 1
    assert "no chat template" in one_line(result)
