"""Text, ids, usage, finish reasons and log probabilities at T = 0: the same with speculation on and off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI

from .tiny import Live

TEXTS = ["the the the the", "abc abc abc abc", "copy: 1 2 3 1 2 3 1 2", "x"]
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "stop": {"stop": ["e", "th", " a"]},
    "stop kept": {"stop": ["e"], "extra_body": {"include_stop_str_in_output": True}},
    "stop ids": {"extra_body": {"stop_token_ids": [70, 71, 72, 73, 74, 75, 76]}},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 1.5},
    "repetition": {"extra_body": {"repetition_penalty": 1.3}},
    "bias": {"logit_bias": {"65": 9, "66": 8}},
    "min tokens": {"extra_body": {"min_tokens": 20, "stop_token_ids": list(range(0, 256, 3))}},
    "top_k": {"extra_body": {"top_k": 3}},
    "min_p": {"extra_body": {"min_p": 0.2}},
    "top_p": {"top_p": 0.5},
    "seed": {"seed": 4},
    "n": {"n": 3},
    "short": {"max_tokens": 1},
    "json": {"response_format": {"type": "json_object"}},
    "regex": {"extra_body": {"response_format": {"type": "regex", "regex": "[a-f]{3,9} [0-9]+\\."}}},
    "ids": {"extra_body": {"skip_special_tokens": False}},
}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def whole(answer: Any) -> Any:
    found = answer.model_dump(exclude={"id", "created"})
    assert found["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in found["choices"])
    for choice in found["choices"]:
        logprobs = choice.pop("logprobs")["content"]
        assert len(logprobs) == len(choice["token_ids"])
        choice["rounded"] = [(entry["token"], round(entry["logprob"], 3)) for entry in logprobs]
    found["usage"].pop("prompt_tokens_details")
    return found


async def ask(live: Live, speculating: bool) -> dict[tuple[str, str], Any]:
    """All combinations at once, whole and streamed."""
    async with AsyncOpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0, timeout=300) as client:

        async def one(text: str, options: dict[str, Any]) -> tuple[Any, str]:
            extra = {"return_token_ids": True, "dspark_usage": True, **options.get("extra_body", {})}
            asked: dict[str, Any] = {
                "model": "tiny", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 24,
                "logprobs": True, "top_logprobs": 2, **options, "extra_body": extra,
            }  # fmt: skip
            answer = await client.chat.completions.create(**asked)
            stream = await client.chat.completions.create(**asked, **STREAMED)
            text, ids, usage = "", [], None
            async for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    if choice.index == 0:
                        text += choice.delta.content or ""
                        ids += getattr(choice, "token_ids", None) or []
            found = whole(answer)
            assert text == found["choices"][0]["message"]["content"]
            assert ids == found["choices"][0]["token_ids"]
            assert usage is not None
            assert usage.completion_tokens == found["usage"]["completion_tokens"]
            counts = found["usage"].pop("dspark")
            assert (counts["drafted"] > 0) <= speculating
            return found, counts

        keys = [(text, name) for text in TEXTS for name in OPTIONS]
        answers = await asyncio.gather(*[one(text, OPTIONS[name]) for text, name in keys])
        if speculating:
            assert sum(counts["accepted"] for _, counts in answers) > 0
        return {key: found for key, (found, _) in zip(keys, answers, strict=True)}


@pytest.mark.pitfall(14)
@pytest.mark.pitfall(16)
@pytest.mark.pitfall(17)
@pytest.mark.pitfall(20)
def test_every_option_gives_the_same_with_and_without_speculation(drafting: Live, plain: Live) -> None:
    with_drafts, without = asyncio.run(ask(drafting, True)), asyncio.run(ask(plain, False))
    assert with_drafts.keys() == without.keys()
    for key, answer in with_drafts.items():
        assert answer == without[key], key
