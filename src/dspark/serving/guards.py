"""What stands before all routes: keys, and limits on bodies. Plain ASGI, as streams must pass untouched."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dspark.serving.errors import ApiError


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with an error."""
    headers: dict[str, Any] = {**(error.headers or {}), "Connection": "close"}
    await JSONResponse(error.body(), error.status_code, headers)(scope, receive, send)


class Keys:
    """Lets in who sends one of the keys as a bearer token; health is for everyone, and so are the files of the page.

    Keys are compared as digests and all of them, so that time tells nothing.

    Args:
        app: what is behind.
        keys: the keys; none lets everyone in.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, and go on."""
        if scope["type"] != "http" or not self._digests or _is_open(scope["path"]) or self._knows(scope):
            await self._app(scope, receive, send)
        else:
            message = "the API key is missing or wrong; send 'Authorization: Bearer KEY'"
            await refuse(ApiError(401, message, code="invalid_api_key"), scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, key = given.partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        found = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(found) and kind.lower() == b"bearer"


def _is_open(path: str) -> bool:
    return path == "/" or path.startswith(("/health", "/page/"))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


class BodyLimit:
    """Reads bodies before anything else, no larger and no slower than allowed.

    Args:
        app: what is behind.
        most: bytes.
        seconds: time for the whole body.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read, and go on."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except ApiError as error:
            await refuse(error, scope, receive, send)
        except ClientDisconnect:
            return
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self._most:
            raise self._too_large()
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._most:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {self._seconds:g} s", code="body_timeout") from None

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._most} bytes", code="body_too_large")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that hands out a body that was read, then what comes after it."""
    left = [body]

    async def replaying() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replaying
