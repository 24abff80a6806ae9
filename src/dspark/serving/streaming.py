"""Server-sent events, and noticing that a client has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dspark.serving.errors import ApiError

_LOG = logging.getLogger("dspark.serving")
_T = TypeVar("_T")
_DONE = b"data: [DONE]\n\n"
SILENCE = b": still here\n\n"
"""A comment that tells everyone on the way that the stream lives."""


def event(body: dict[str, Any]) -> bytes:
    """One event."""
    return b"data: " + to_json(body) + b"\n\n"


async def unless_gone(receive: Receive, work: Awaitable[_T]) -> _T | None:
    """The result of ``work``; None, and ``work`` cancelled, if the client goes away first."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for running in (task, watch):
            if not running.done():
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A response that sends events as they come.

    Args:
        events: bodies of the events; an :class:`ApiError` of it becomes the last one.
        close: called once when nothing is read any more, whatever happened.
        patience: seconds a client may leave its buffers full.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None], *, patience: float) -> None:
        self.status_code = 200
        self.background = None
        self._events, self._close, self._patience = events, close, patience
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    def init_headers(self, headers: Any = None) -> None:
        """Headers of a body whose length is not known."""
        self.body = b""
        super().init_headers(headers)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await unless_gone(receive, self._send(send))
        except TimeoutError:
            _LOG.warning("a client did not read its stream for %g s, and was left", self._patience)
        finally:
            self._close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self._events:
                await self._write(send, chunk)
        except ApiError as error:
            await self._write(send, event(error.body()))
        await self._write(send, _DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, chunk: bytes) -> None:
        async with asyncio.timeout(self._patience):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
