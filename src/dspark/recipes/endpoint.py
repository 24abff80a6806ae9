"""Single requests to an OpenAI-compatible endpoint: errors told apart, waits, the client library found."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dspark.core import InputError
from dspark.data.prompt_turns import BadPromptError

_WRONG = {401: "wrong key", 403: "not allowed", 404: "no such model or address"}
"""Answers after which no other request needs to be tried."""
_LATER = {408, 409, 425, 429}
"""Refusals that may not stand the next time, besides all of the server's own errors."""


class UnreachableError(Exception):
    """A request that did not get through, as often as it was tried."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where answers come from.

    Attributes:
        base_url: address up to ``/v1``.
        model: its name there.
        api_key: for servers that ask for one.
        in_flight: conversations that are answered at a time.
        attempts: how often a request is tried.
        first_wait, longest_wait: seconds before the second attempt, doubled every time, and their bound; what a server
            asks for in ``Retry-After`` counts up to the bound too.
        timeout: seconds until a request counts as lost.
    """

    base_url: str
    model: str
    api_key: str = "none"
    in_flight: int = 32
    attempts: int = 6
    first_wait: float = 0.5
    longest_wait: float = 60.0
    timeout: float = 600.0

    def __post_init__(self) -> None:
        for name in ("in_flight", "attempts"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")

    def wait(self, attempt: int, asked: str | None) -> float:
        """Seconds before the next attempt."""
        own = self.first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
        with suppress(ValueError):  # it may be a date
            own = max(own, float(asked or 0))
        return min(own, self.longest_wait)


def openai_library() -> Any:
    """The client library.

    Raises:
        InputError: it is missing.
    """
    if find_spec("openai") is None:
        raise InputError("asking an endpoint needs the library openai; run: pip install 'dspark[endpoint]'")
    return import_module("openai")


def only_model(base_url: str, api_key: str) -> str:
    """Name of the only model an endpoint has.

    Raises:
        InputError: it cannot be asked, or has none or several.
    """
    library = openai_library()
    try:
        with library.OpenAI(base_url=base_url, api_key=api_key, max_retries=1, timeout=20.0) as client:
            names = [model.id for model in client.models.list()]
    except (library.OpenAIError, ValueError, AttributeError) as error:
        raise InputError(f"cannot ask {base_url} for its models: {_first_line(error)}") from None
    if len(names) != 1:
        raise InputError(f"say which model answers (--model): {base_url} has {', '.join(names) or 'none'}")
    return str(names[0])


class Line:
    """An open connection to an endpoint; use it as an asynchronous context."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._library = endpoint, openai_library()
        self._client = self._library.AsyncOpenAI(
            base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0, timeout=endpoint.timeout
        )

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    async def ask(self, request: dict[str, Any]) -> tuple[Any, Any, int]:
        """Send a request until it gets through; returns the first choice, the usage and the number of attempts.

        Raises:
            InputError: the endpoint wants nothing of the kind: a wrong key, model or address.
            BadPromptError: the endpoint does not take this request.
            UnreachableError: it did not get through.
        """
        for attempt in range(1, self._endpoint.attempts + 1):
            try:
                completion = await self._client.chat.completions.create(**request)
                choices = getattr(completion, "choices", None)
                if choices:
                    return choices[0], getattr(completion, "usage", None), attempt
                said, asked = "an answer without choices", None
            except self._library.APIStatusError as refusal:
                said, asked = self._judge(refusal), refusal.response.headers.get("retry-after")
            except (self._library.OpenAIError, ValueError) as lost:  # connections, timeouts, half an answer
                said, asked = _first_line(lost.__cause__ or lost), None
            if attempt < self._endpoint.attempts:
                await asyncio.sleep(self._endpoint.wait(attempt, asked))
        raise UnreachableError(f"{said} ({self._endpoint.attempts} attempts)")

    def _judge(self, refusal: Any) -> str:
        """Words for a refusal after which trying again makes sense; raises for others."""
        status, said = refusal.status_code, f"status {refusal.status_code}: {_first_line(refusal)}"
        if status in _WRONG:
            raise InputError(f"{self._endpoint.base_url} refuses ({_WRONG[status]}): {_first_line(refusal)}")
        if status < 500 and status not in _LATER:
            raise BadPromptError(f"the endpoint refuses it with {said}")
        return said


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
