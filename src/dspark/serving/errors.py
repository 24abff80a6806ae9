"""Errors as OpenAI's clients expect them."""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException


class ApiError(HTTPException):
    """An error for the client.

    Args:
        status: HTTP status.
        message: one sentence.
        kind: OpenAI's ``type``.
        param: the field that is wrong, if it is one.
        code: OpenAI's ``code``, for programs.
        retry_after: seconds after which trying again makes sense.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(status, message, None if retry_after is None else {"Retry-After": str(retry_after)})
        self.kind, self.param, self.code = kind, param, code

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        return {"error": {"message": self.detail, "type": self.kind, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None) -> ApiError:
    """What the client sent is wrong."""
    return ApiError(400, message, param=param)


def queue_full(retry_after: int) -> ApiError:
    """Too many requests wait already."""
    message = f"the server is busy and its queue is full; try again in {retry_after} s"
    return ApiError(429, message, kind="rate_limit_error", code="rate_limit_exceeded", retry_after=retry_after)


def shutting_down() -> ApiError:
    """No new requests, or the end of one that took too long."""
    return ApiError(503, "the server is shutting down", kind="server_error", code="shutting_down", retry_after=5)


def deadline_passed() -> ApiError:
    """A request took longer than it may."""
    return ApiError(408, "the request was not finished in the time it may take", kind="timeout", code="deadline")


def engine_failed(message: str) -> ApiError:
    """The engine could not go on with this request."""
    return ApiError(500, message, kind="server_error", code="engine_failed")
