"""Servers that several tests share: speculation on, and off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from .tiny import Live, live, tiny_llm


@pytest.fixture(scope="session")
def drafting() -> Iterator[Live]:
    with live(tiny_llm("ngram")) as running:
        yield running


@pytest.fixture(scope="session")
def plain() -> Iterator[Live]:
    with live(tiny_llm("none")) as running:
        yield running


@pytest.fixture(scope="session")
def client(drafting: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{drafting.url}/v1", api_key="none", max_retries=0, timeout=60) as found:
        yield found


@pytest.fixture(scope="session")
def plain_client(plain: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{plain.url}/v1", api_key="none", max_retries=0, timeout=60) as found:
        yield found
