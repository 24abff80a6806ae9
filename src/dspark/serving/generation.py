"""From a checked HTTP request to its answers, whole or streamed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from dspark.core import InputError, SamplingParams
from dspark.serving.errors import bad_request
from dspark.serving.replies import Reply
from dspark.serving.sampling import about_input
from dspark.serving.schema import Sampling
from dspark.serving.service import Service, fresh_id
from dspark.serving.streaming import SILENCE, EventStream, event, unless_gone
from dspark.serving.ticket import Delta, Mailbox, Ticket
from dspark.serving.tracing import NoTrace, Trace
from dspark.serving.usage import Usage
from dspark.verify import TokenConstraint

_LOG = logging.getLogger("dspark.serving")
_CLIENT_GONE = 499


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to generate.

    Attributes:
        prompts: token ids.
        params: for all prompts.
        constraint: makes what restricts the form of an answer; None for none.
        reply: how answers are written.
    """

    prompts: Sequence[tuple[int, ...]]
    params: SamplingParams
    constraint: Callable[[], TokenConstraint] | None
    reply: Reply


async def respond(service: Service, request: Request, body: Sampling, order: Order) -> Response:
    """Check an order, line it up, and answer.

    Raises:
        ApiError: it is refused.
    """
    _check(service, body, order)
    generation = Generation(service, body, order, _client(service, request))
    service.loop.submit(generation.tickets)
    generation.begin_trace(request)
    if body.stream:
        patience = service.settings.slow_reader_seconds
        return EventStream(generation.events(), generation.close, patience=patience)
    try:
        answer = await unless_gone(request.receive, generation.whole())
    finally:
        generation.close()
    return Response(status_code=_CLIENT_GONE) if answer is None else JSONResponse(answer)


class Generation:
    """An HTTP request that is being answered."""

    def __init__(self, service: Service, body: Sampling, order: Order, client: str) -> None:
        self._service, self._order = service, order
        self._name = fresh_id(order.reply.prefix)
        n = order.params.n
        self._mailbox = Mailbox(asyncio.get_running_loop(), n * len(order.prompts), streamed=bool(body.stream))
        seconds = min([s for s in (body.timeout, service.settings.request_seconds) if s is not None], default=None)
        self.tickets = [
            Ticket(
                name=f"{self._name}-{place}",
                prompt_ids=ids,
                params=order.params,
                constraint=order.constraint,
                client=client,
                priority=body.priority or 0,
                deadline=None if seconds is None else time.monotonic() + seconds,
                mailbox=self._mailbox,
                first_choice=place * n,
            )
            for place, ids in enumerate(order.prompts)
        ]
        self._usage = Usage(sum(map(len, order.prompts)), bool(body.dspark_usage))
        self._with_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._created = int(time.time())
        self._trace: Trace = NoTrace()

    def begin_trace(self, request: Request) -> None:
        """Note from now on what takes how long."""
        facts: dict[str, str | int | bool] = {
            "id": self._name,
            "model": self._service.model,
            "path": request.url.path,
            "answers": sum(ticket.params.n for ticket in self.tickets),
        }
        self._trace = self._service.tracing.request(request.headers, facts)

    def close(self) -> None:
        """Nobody reads any more; what is not finished is dropped."""
        self._service.loop.cancel(self.tickets)
        self._trace.close()

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is sent as a whole."""
        answers: dict[int, Delta] = {}
        while news := await self._mailbox.take():
            for delta in news:
                answers.setdefault(delta.choice, Delta(delta.choice)).add(delta)
                self._count(delta)
        reply = self._order.reply
        choices = [reply.whole(answers[choice]) for choice in sorted(answers)]
        return self._body(reply.kind, choices) | {"usage": self._usage.body()}

    async def events(self) -> AsyncIterator[bytes]:
        """The events of a stream."""
        reply = self._order.reply
        for choice in reply.opening():
            yield self._chunk([choice])
        while True:
            try:
                async with asyncio.timeout(self._service.settings.keep_alive_seconds):
                    news = await self._mailbox.take()
            except TimeoutError:
                yield SILENCE
                continue
            if not news:
                break
            for delta in news:
                self._count(delta)
            if found := [self._chunk([choice]) for delta in news for choice in reply.pieces(delta)]:
                yield b"".join(found)
        if self._with_usage:
            yield event(self._body(reply.chunk_kind, []) | {"usage": self._usage.body()})

    def _chunk(self, choices: list[dict[str, Any]]) -> bytes:
        body = self._body(self._order.reply.chunk_kind, choices)
        return event(body | {"usage": None} if self._with_usage else body)

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._name,
            "object": kind,
            "created": self._created,
            "model": self._service.model,
            "choices": choices,
        }

    def _count(self, delta: Delta) -> None:
        if delta.completion is not None:
            self._usage.add(delta.completion)
            self._trace.answered(self.tickets[delta.choice // self._order.params.n], delta.completion)
            stats = delta.completion.stats
            _LOG.info(
                "%s[%d] %s prompt=%d completion=%d rounds=%d",
                self._name, delta.choice, delta.completion.finish_reason, stats.prompt_tokens,
                len(delta.completion.token_ids), stats.rounds,
            )  # fmt: skip
            if self._service.settings.log_prompts:
                prompt = self._order.prompts[delta.choice // self._order.params.n]
                _LOG.info("%s[%d] %r -> %r", self._name, delta.choice, list(prompt), delta.completion.text)


def _check(service: Service, body: Sampling, order: Order) -> None:
    answers = order.params.n * len(order.prompts)
    if answers > service.settings.max_answers:
        message = f"the request asks for {answers} answers, but at most {service.settings.max_answers} are allowed"
        raise bad_request(message, "n")
    try:
        for ids in order.prompts:
            service.llm.engine.check_request(ids, order.params, constrained=order.constraint is not None)
    except InputError as error:
        raise about_input(error, body) from None


def _client(service: Service, request: Request) -> str:
    """Whom the engine's time is charged to: the key where keys are asked for, else the address."""
    if service.settings.api_keys:
        return request.headers.get("authorization", "")
    return request.client.host if request.client else ""
