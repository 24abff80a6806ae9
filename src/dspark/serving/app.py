"""The application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from dspark.serving.errors import ApiError, bad_request
from dspark.serving.guards import BodyLimit, Keys
from dspark.serving.info_routes import info_routes
from dspark.serving.page_routes import add_page
from dspark.serving.routes import generation_routes
from dspark.serving.service import Service

_MOST_SAID = 400


def make_app(service: Service) -> FastAPI:
    """An ASGI application in front of a service; its lifespan starts and stops the engine's thread."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.loop.start()
        yield
        await service.close()

    app = FastAPI(title="dspark", version=version("dspark"), lifespan=lifespan)
    app.include_router(generation_routes(service))
    app.include_router(info_routes(service))
    add_page(app)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(Exception, _failed)
    settings = service.settings
    app.add_middleware(BodyLimit, most=settings.max_body_bytes, seconds=settings.body_seconds)
    app.add_middleware(Keys, keys=[key.get_secret_value() for key in settings.api_keys])
    return app


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Errors of ours, and those of the framework (no such path, wrong method)."""
    assert isinstance(error, HTTPException)
    known = error if isinstance(error, ApiError) else ApiError(error.status_code, str(error.detail))
    return JSONResponse(known.body(), error.status_code, error.headers)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    """A body that is not what the route expects."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    param = place[0] if place and place[0] != "0" else None
    said = f"{'.'.join(place)}: {first['msg']}" if place else str(first["msg"])
    return JSONResponse(bad_request(said[:_MOST_SAID], param).body(), 400)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """A fault of ours; the traceback is in the log."""
    said = ApiError(500, "the server made a mistake; its log says more", kind="server_error", code="internal")
    return JSONResponse(said.body(), 500)
