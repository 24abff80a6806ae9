"""What clients may ask for beyond OpenAI's fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from openai import OpenAI

from .tiny import Live, confident_llm, live

HELLO: list[Any] = [{"role": "user", "content": "the the the the"}]
CHAT = "/v1/chat/completions"
ORIGINS = {"draft", "correction", "bonus", "plain"}


@pytest.fixture(scope="module")
def confident() -> Iterator[Live]:
    """A server whose drafter says how sure it is."""
    with live(confident_llm(HELLO)) as running:
        yield running


def streamed(live: Live, **options: Any) -> list[Any]:
    """Choices of a streamed chat answer."""
    asked = {"model": "tiny", "messages": HELLO, "temperature": 0, "max_tokens": 60} | options
    with OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        extra = {name: asked.pop(name) for name in ("return_origins", "max_draft_tokens") if name in asked}
        chunks = list(client.chat.completions.create(**asked, stream=True, extra_body=extra))
    return [chunk.choices[0] for chunk in chunks]


def test_every_token_says_who_wrote_it_and_how_sure_the_drafter_was(confident: Live) -> None:
    choices = streamed(confident, return_origins=True)
    pieces = [piece for choice in choices for piece in getattr(choice, "pieces", None) or []]
    assert "".join(text for text, _, _ in pieces) == "".join(choice.delta.content or "" for choice in choices)
    assert {(origin, sure and round(sure, 3)) for _, origin, sure in pieces} == {
        ("plain", None), ("draft", 0.9), ("correction", 0.4), ("bonus", None),
    }  # fmt: skip


def test_origins_are_there_only_if_asked_for(confident: Live) -> None:
    assert not any(hasattr(choice, "pieces") for choice in streamed(confident))


def test_origins_of_an_answer_that_comes_whole(drafting: Live) -> None:
    body = {"prompt": "the the the the the the", "max_tokens": 40, "temperature": 0, "return_origins": True}
    choice = httpx.post(f"{drafting.url}/v1/completions", json=body, timeout=60).json()["choices"][0]
    assert "".join(text for text, _, _ in choice["pieces"]) == choice["text"]
    assert {sure for _, _, sure in choice["pieces"]} == {None}, "n-grams give no confidence"


def test_pieces_inside_tags_are_not_lost(confident: Live) -> None:
    """Text that is held back because it may become a tag has its pieces all the same."""
    tool = {"type": "function", "function": {"name": "f"}}
    choices = streamed(confident, return_origins=True, tools=[tool], tool_choice="required")
    pieces = [piece for choice in choices for piece in getattr(choice, "pieces", None) or []]
    assert "".join(text for text, _, _ in pieces).startswith("<tool_call>")


def test_a_request_can_be_answered_without_drafts(confident: Live) -> None:
    base = {"messages": HELLO, "max_tokens": 60, "temperature": 0, "dspark_usage": True, "return_token_ids": True}
    ask = lambda **more: httpx.post(f"{confident.url}{CHAT}", json=base | more, timeout=60).json()  # noqa: E731
    with_drafts, without, few = ask(), ask(max_draft_tokens=0), ask(max_draft_tokens=1)
    assert with_drafts["choices"] == without["choices"] == few["choices"]
    assert with_drafts["usage"]["dspark"]["accepted"] > 30
    assert without["usage"]["dspark"] == {"rounds": 59, "drafted": 0, "verified": 0, "accepted": 0}
    assert 0 < few["usage"]["dspark"]["drafted"] <= few["usage"]["dspark"]["rounds"]
    refused = httpx.post(f"{confident.url}{CHAT}", json=base | {"max_draft_tokens": -1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_draft_tokens")


def test_the_extensions_are_documented(drafting: Live) -> None:
    schemas = httpx.get(f"{drafting.url}/openapi.json").json()["components"]["schemas"]
    for name in ("ChatRequest", "CompletionRequest"):
        fields = schemas[name]["properties"]
        assert all(origin in fields["return_origins"]["description"] for origin in ORIGINS)
        assert "0 decodes plainly" in fields["max_draft_tokens"]["description"]
