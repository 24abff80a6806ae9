"""The OpenAI-compatible routes that generate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from dspark.core import InputError
from dspark.serving.chat_prompt import ChatPrompt, render_chat, template_options
from dspark.serving.errors import bad_request
from dspark.serving.forms import format_grammar, tool_grammar
from dspark.serving.generation import Order, respond
from dspark.serving.replies import ChatReply, CompletionReply
from dspark.serving.sampling import chat_params, completion_params
from dspark.serving.schema import ChatRequest, CompletionRequest
from dspark.serving.service import Service
from dspark.serving.strict_json import StrictJsonRoute
from dspark.verify import TokenConstraint

_Made = Callable[[], TokenConstraint]


def generation_routes(service: Service) -> APIRouter:
    """``/v1/chat/completions`` and ``/v1/completions``."""
    router = APIRouter(prefix="/v1", route_class=StrictJsonRoute, tags=["generation"])

    @router.post("/chat/completions", response_model=None, summary="Answer a conversation")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation, whole or as a stream of server-sent events."""
        service.check_model(body.model)
        order = await service.texts.run(partial(_chat_order, service, body))
        return await respond(service, request, body, order)

    @router.post("/completions", response_model=None, summary="Continue a text")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue one or more prompts, whole or as a stream of server-sent events."""
        service.check_model(body.model)
        order = await service.texts.run(partial(_completion_order, service, body))
        return await respond(service, request, body, order)

    return router


def _chat_order(service: Service, body: ChatRequest) -> Order:
    """Read a chat request (thread of the texts)."""
    params = chat_params(body)
    tools = [] if body.tool_choice == "none" else body.tools or []
    prompt = render_chat(service.texts.tokenizer, body.messages, tools, template_options(body))
    return Order(
        prompts=[prompt.ids],
        params=params,
        constraint=_chat_constraint(service, body, prompt),
        reply=ChatReply(
            n=params.n,
            thinks=service.thinks,
            inside=prompt.thinking,
            tools=service.tools if tools else None,
            piece=service.texts.piece,
            logprobs=params.logprobs is not None,
            token_ids=bool(body.return_token_ids),
            origins=bool(body.return_origins),
        ),
    )


def _chat_constraint(service: Service, body: ChatRequest, prompt: ChatPrompt) -> _Made | None:
    form, call = format_grammar(body.response_format), tool_grammar(body, service.tools)
    if form is not None and call is not None:
        raise bad_request("response_format and a tool_choice that forces a call exclude each other", "tool_choice")
    grammar = form if call is None else call
    if grammar is not None and prompt.thinking:
        raise bad_request("the form of an answer that begins with thoughts cannot be given; turn thinking off")
    return _compiled(service, grammar, "response_format" if call is None else "tools")


def _compiled(service: Service, grammar: str | None, param: str) -> _Made | None:
    if grammar is None:
        return None
    try:
        return service.grammars.compile(grammar)
    except InputError as error:
        raise bad_request(str(error), param) from None


def _completion_order(service: Service, body: CompletionRequest) -> Order:
    """Read a plain completion request (thread of the texts)."""
    params = completion_params(body)
    prompts = _prompts(service, body.prompt)
    return Order(
        prompts=prompts,
        params=params,
        constraint=_compiled(service, format_grammar(body.response_format), "response_format"),
        reply=CompletionReply(
            echo=tuple([service.texts.decode(list(ids)) for ids in prompts]) if body.echo else (),
            n=params.n,
            piece=service.texts.piece,
            logprobs=params.logprobs is not None,
            token_ids=bool(body.return_token_ids),
            origins=bool(body.return_origins),
        ),
    )


def _prompts(service: Service, prompt: str | list[str] | list[int] | list[list[int]]) -> list[tuple[int, ...]]:
    """One text, several, one list of ids, or several."""
    listed = [prompt] if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int) else prompt
    if len(listed) > service.settings.max_answers:
        raise bad_request(
            f"there are {len(listed)} prompts, at most {service.settings.max_answers} are allowed", "prompt"
        )
    encode = service.texts.tokenizer.encode
    return [tuple(encode(one)) if isinstance(one, str) else tuple(one) for one in listed]  # type: ignore[arg-type]
