"""Reading JSON as strictly as it is defined: no NaN, no halves of characters, no endless nesting."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.responses import Response

from dspark.serving.errors import bad_request


class _StrictRequest(Request):
    async def json(self) -> Any:
        """The body, parsed."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise bad_request(f"the body is no valid JSON: {error}") from None


class StrictJsonRoute(APIRoute):
    """A route whose body is read this way."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, handed another kind of request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return handle
