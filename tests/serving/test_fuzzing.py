"""Whatever a body holds: an answer that adds up, or a 4xx with a reason."""

from __future__ import annotations

import json
from typing import Any

import httpx2 as httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .tiny import Live

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NUMBERS = st.integers(-2, 8) | st.floats(-3, 3) | ANYTHING
FIELDS: dict[str, Any] = {
    "temperature": NUMBERS, "top_p": NUMBERS, "top_k": NUMBERS, "min_p": NUMBERS, "n": NUMBERS, "seed": NUMBERS,
    "presence_penalty": NUMBERS, "frequency_penalty": NUMBERS, "repetition_penalty": NUMBERS, "min_tokens": NUMBERS,
    "logprobs": st.booleans() | NUMBERS, "top_logprobs": NUMBERS, "stop": st.lists(st.text(max_size=3)) | ANYTHING,
    "stop_token_ids": st.lists(st.integers(-1, 300), max_size=3) | ANYTHING, "max_completion_tokens": NUMBERS,
    "logit_bias": st.dictionaries(st.integers(0, 300).map(str), st.floats(-101, 101), max_size=3) | ANYTHING,
    "response_format": st.sampled_from([{"type": "json_object"}, {"type": "regex", "regex": "a{2}|b"}]) | ANYTHING,
    "tools": ANYTHING, "tool_choice": st.sampled_from(["auto", "none", "required"]) | ANYTHING, "stream": ANYTHING,
    "stream_options": ANYTHING, "user": ANYTHING, "priority": NUMBERS, "timeout": NUMBERS, "ignore_eos": ANYTHING,
    "chat_template_kwargs": ANYTHING, "echo": ANYTHING, "best_of": NUMBERS, "unknown": ANYTHING,
}  # fmt: skip
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant", "tool"]), "content": st.text(max_size=9)}
    ),
    min_size=1,
    max_size=3,
)
CHAT = st.fixed_dictionaries({"messages": MESSAGES | ANYTHING, "max_tokens": st.just(4)}, optional=FIELDS)
PLAIN = st.fixed_dictionaries(
    {"prompt": st.text(max_size=9) | st.lists(st.integers(-1, 270), max_size=4) | ANYTHING, "max_tokens": st.just(4)},
    optional=FIELDS,
)
CAREFUL = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def check(answer: httpx.Response) -> None:
    if answer.status_code == 200:
        if answer.headers["content-type"].startswith("text/event-stream"):
            assert answer.text.endswith("data: [DONE]\n\n")
            return
        found = answer.json()
        assert found["usage"]["completion_tokens"] <= 4 * len(found["choices"])
        return
    assert answer.status_code in (400, 408), answer.text
    assert answer.json()["error"]["message"]


@CAREFUL
@given(body=CHAT)
def test_chat(drafting: Live, body: dict[str, Any]) -> None:
    check(httpx.post(f"{drafting.url}/v1/chat/completions", content=json.dumps(body), headers=JSON, timeout=60))


@CAREFUL
@given(body=PLAIN)
def test_completions(drafting: Live, body: dict[str, Any]) -> None:
    check(httpx.post(f"{drafting.url}/v1/completions", content=json.dumps(body), headers=JSON, timeout=60))


JSON = {"Content-Type": "application/json"}
