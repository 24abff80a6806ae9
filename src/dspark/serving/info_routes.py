"""Routes that tell about the server and its model."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from dspark.serving.chat_prompt import render_chat, template_of
from dspark.serving.errors import ApiError, bad_request
from dspark.serving.schema import DetokenizeRequest, TokenizeRequest
from dspark.serving.service import Service
from dspark.serving.strict_json import StrictJsonRoute


def info_routes(service: Service) -> APIRouter:
    """Models, tokens, health, metrics, version."""
    router = APIRouter(route_class=StrictJsonRoute, tags=["information"])
    core = service.llm.engine

    def card() -> dict[str, Any]:
        return {
            "id": service.model,
            "object": "model",
            "created": service.started,
            "owned_by": "dspark",
            "max_model_len": core.max_context,
        }

    @router.get("/v1/models", summary="The models that are here")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card()]}

    @router.get("/v1/models/{name:path}", summary="One model")
    async def model(name: str) -> dict[str, Any]:
        service.check_model(name)
        return card()

    @router.post("/tokenize", summary="Token ids of a text or a conversation")
    async def tokenize(body: TokenizeRequest) -> dict[str, Any]:
        service.check_model(body.model)
        ids = await service.texts.run(partial(_tokenized, service, body))
        return {"tokens": ids, "count": len(ids), "max_model_len": core.max_context}

    @router.post("/detokenize", summary="Text of token ids")
    async def detokenize(body: DetokenizeRequest) -> dict[str, Any]:
        service.check_model(body.model)
        size = core.target.facts.vocab_size
        if (strange := next((token for token in body.tokens if not 0 <= token < size), None)) is not None:
            raise bad_request(f"tokens holds {strange}, expected ids from 0 to {size - 1}", "tokens")
        return {"prompt": await service.texts.run(partial(service.texts.decode, body.tokens))}

    @router.get("/health", summary="Whether requests are taken")
    @router.get("/health/ready", summary="Whether requests are taken")
    async def ready() -> JSONResponse:
        return _health(service.loop.ready, "ready")

    @router.get("/health/live", summary="Whether the engine's thread runs")
    async def live() -> JSONResponse:
        return _health(service.loop.alive, "live")

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/version", summary="Version, model and drafter")
    async def about() -> dict[str, Any]:
        return {
            "version": version("dspark"),
            "model": service.model,
            "target": service.llm.loaded.source,
            "drafter": core.drafter.name,
            "policy": core.policy.name,
            "chat": bool(template_of(service.llm.loaded.tokenizer)),
        }

    return router


def _tokenized(service: Service, body: TokenizeRequest) -> list[int]:
    tokenizer = service.texts.tokenizer
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("give prompt or messages, one of the two")
    if body.prompt is not None:
        return list(tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens))
    options = body.chat_template_kwargs or {}
    found = render_chat(
        tokenizer, body.messages or (), body.tools or (), options, answer_next=body.add_generation_prompt
    )
    return list(found.ids)


def _health(good: bool, name: str) -> JSONResponse:
    if good:
        return JSONResponse({"status": name})
    error = ApiError(503, f"the server is not {name}", kind="server_error", code=f"not_{name}")
    return JSONResponse(error.body(), 503)
