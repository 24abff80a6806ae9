"""The official client against the live server, speculation on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from .tiny import Live

HELLO: list[Any] = [{"role": "user", "content": "the the the the cat"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "now": {"type": "boolean"}},
            "required": ["city", "now"],
            "additionalProperties": False,
        },
    },
}


class Choice(BaseModel):
    model_config = {"extra": "forbid"}
    colour: bool
    number: bool


def test_a_chat_answer_has_everything(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_completion_tokens=9, temperature=0)
    assert answer.object == "chat.completion"
    assert answer.model == "tiny"
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 9


def test_a_stream_is_the_same_answer_in_pieces(client: OpenAI) -> None:
    options: Any = {"model": "tiny", "messages": HELLO, "max_tokens": 30, "temperature": 0, "n": 2}
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    for index in range(2):
        mine = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(c.delta.content or "" for c in mine) == whole.choices[index].message.content
        assert [c.finish_reason for c in mine if c.finish_reason] == ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 60
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_async_client(drafting: Live) -> None:
    async def many() -> list[str]:
        async with AsyncOpenAI(base_url=f"{drafting.url}/v1", api_key="x", max_retries=0) as client:
            asked = [
                client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=8, temperature=0)
                for _ in range(4)
            ]
            stream = await client.chat.completions.create(
                model="tiny", messages=HELLO, max_tokens=8, temperature=0, stream=True
            )
            texts = ["".join([c.choices[0].delta.content or "" async for c in stream])]
            return texts + [a.choices[0].message.content or "" for a in await asyncio.gather(*asked)]

    assert len(set(asyncio.run(many()))) == 1


def test_structured_output_parses(client: OpenAI) -> None:
    done = client.chat.completions.parse(
        model="tiny", messages=HELLO, response_format=Choice, max_tokens=300, temperature=0.7, seed=3
    )
    assert isinstance(done.choices[0].message.parsed, Choice)
    assert done.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("temperature", [0, 1.2])
@pytest.mark.parametrize(
    ("form", "fits"),
    [
        (
            {"type": "regex", "regex": "(yes|no) [0-9]{3}"},
            lambda text: text[-3:].isdigit() and text[:2] in ("ye", "no"),
        ),
        ({"type": "grammar", "grammar": 'start: "a" B+ "."\nB: /[xy]{2}/'}, lambda t: t[0] == "a" and t[-1] == "."),
    ],
)
def test_regex_and_grammar(client: OpenAI, form: Any, fits: Any, temperature: float) -> None:
    for seed in range(3):
        done = client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=200, temperature=temperature, seed=seed,
            extra_body={"response_format": form},
        )  # fmt: skip
        assert done.choices[0].finish_reason == "stop"
        assert fits(done.choices[0].message.content)


def test_any_json_object_is_json_as_far_as_it_goes(client: OpenAI) -> None:
    done = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=40, temperature=0.9, seed=1, response_format={"type": "json_object"}
    )
    assert (done.choices[0].message.content or "").startswith("{")
    if done.choices[0].finish_reason == "stop":
        json.loads(done.choices[0].message.content or "")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_tool_calls(client: OpenAI, choice: Any) -> None:
    options: Any = {"model": "tiny", "messages": HELLO, "tools": [WEATHER], "tool_choice": choice, "max_tokens": 400,
                    "temperature": 0.8, "seed": 5, "parallel_tool_calls": False}  # fmt: skip
    done = client.chat.completions.create(**options)
    assert done.choices[0].finish_reason == "tool_calls"
    assert done.choices[0].message.content is None
    (call,) = done.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "weather"
    arguments = json.loads(call.function.arguments)
    assert arguments["city"] in ("Oslo", "Rome")
    with client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "tool_calls"
    streamed = (final.choices[0].message.tool_calls or [])[0]
    assert json.loads(streamed.function.arguments) == arguments
    turns = [*HELLO, done.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    again = client.chat.completions.create(model="tiny", messages=turns, tools=[WEATHER], max_tokens=5)
    assert again.choices[0].finish_reason == "length"


def test_logprobs_have_one_entry_per_token(client: OpenAI) -> None:
    done = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=12, temperature=0, logprobs=True, top_logprobs=3
    )
    found = done.choices[0].logprobs
    assert found is not None
    assert found.content is not None
    assert len(found.content) == 12
    for entry in found.content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob)


def test_plain_completions(client: OpenAI) -> None:
    done = client.completions.create(
        model="tiny", prompt=["the the the", "abc abc"], max_tokens=5, temperature=0, n=2, logprobs=2, echo=False
    )
    assert [choice.index for choice in done.choices] == [0, 1, 2, 3]
    assert done.choices[0].text == done.choices[1].text != done.choices[2].text
    assert done.choices[0].logprobs is not None
    assert len(done.choices[0].logprobs.tokens or []) == 5
    assert done.usage is not None
    assert done.usage.completion_tokens == 20
    ids = client.completions.create(model="tiny", prompt=[72, 73], max_tokens=3, temperature=0, echo=True)
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 2
    streamed = client.completions.create(model="tiny", prompt="the the the", max_tokens=5, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == done.choices[0].text


def test_thinking_comes_apart(client: OpenAI) -> None:
    options: Any = {"model": "tiny", "messages": HELLO, "max_tokens": 6, "temperature": 0}
    thoughtful = client.chat.completions.create(**options, extra_body={"enable_thinking": True})
    message: Any = thoughtful.choices[0].message
    assert message.reasoning_content
    assert message.content == ""
    assert not hasattr(client.chat.completions.create(**options).choices[0].message, "reasoning_content")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n"),
        ({"n": 65}, "n"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"999": 1}}, "logit_bias"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": [""]}, "stop"),
        ({"extra_body": {"top_k": 2**70}}, "top_k"),
        ({"extra_body": {"min_p": 7}}, "min_p"),
        ({"extra_body": {"response_format": {"type": "regex", "regex": "("}}}, "response_format"),
        ({"extra_body": {"response_format": {"type": "json_schema"}}}, "response_format"),
        ({"extra_body": {"chat_template_kwargs": {"tokenize": True}}}, "chat_template_kwargs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, None),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_what_is_wrong_is_said(client: OpenAI, options: dict[str, Any], param: str | None) -> None:
    asked: Any = {"model": "tiny", "messages": HELLO} | options
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**asked)
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["type"] == "invalid_request_error"
    assert raised.value.body["param"] == param


def test_other_models_are_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        client.chat.completions.create(model="gpt", messages=HELLO)
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_unknown_fields_are_ignored_and_odd_seeds_taken(client: OpenAI) -> None:
    for seed in (-1, 2**63 - 1, 2**80):
        client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=2, seed=seed, extra_body={"no_such_field": {"a": 1}}
        )
