"""Spans of requests for OpenTelemetry: the request, and for each answer its time in the queue, prefill and decode."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from dspark.engine import CompletionOutput
from dspark.serving.ticket import Ticket

_NEEDED = "tracing needs OpenTelemetry: pip install 'dspark[otel]'"


class Trace(Protocol):
    """The trace of one HTTP request."""

    def answered(self, ticket: Ticket, done: CompletionOutput) -> None:
        """Note an answer that has ended (event loop)."""
        ...

    def close(self) -> None:
        """The request is over."""
        ...


class Tracing(Protocol):
    """Makes traces."""

    def request(self, headers: Mapping[str, str], facts: Mapping[str, str | int | bool]) -> Trace:
        """Begin the trace of a request, within the caller's if its headers name one."""
        ...

    def close(self) -> None:
        """Send what has not been sent."""
        ...


class NoTrace:
    """Notes nothing."""

    def answered(self, ticket: Ticket, done: CompletionOutput) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class NoTracing:
    """Tracing that is off."""

    def request(self, headers: Mapping[str, str], facts: Mapping[str, str | int | bool]) -> Trace:
        """A trace of nothing."""
        return NoTrace()

    def close(self) -> None:
        """Nothing."""


class OtelTracing:
    """Traces through OpenTelemetry's SDK, with a provider of its own.

    Args:
        provider: an SDK ``TracerProvider``.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("dspark.serving")
        self._api = import_module("opentelemetry.trace")
        self._propagator = import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()

    @classmethod
    def to_endpoint(cls, endpoint: str) -> OtelTracing:
        """Send to a collector over OTLP/HTTP.

        Raises:
            InputError: OpenTelemetry is not installed.
        """
        from dspark.core import InputError

        try:
            sdk, export = import_module("opentelemetry.sdk.trace"), import_module("opentelemetry.sdk.trace.export")
            resources = import_module("opentelemetry.sdk.resources")
            otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        except ModuleNotFoundError:
            raise InputError(_NEEDED) from None
        provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": "dspark"}))
        provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=endpoint)))
        return cls(provider)

    def request(self, headers: Mapping[str, str], facts: Mapping[str, str | int | bool]) -> Trace:
        """Begin the span of a request."""
        parent = self._propagator.extract(dict(headers))
        span = self._tracer.start_span("request", context=parent, attributes=dict(facts))
        return OtelTrace(self._tracer, span, self._api.set_span_in_context(span))

    def close(self) -> None:
        """Send what has not been sent, and stop."""
        self._provider.shutdown()


class OtelTrace:
    """A request's span and those below it. Times come from the ticket, so the engine's thread does nothing for it."""

    def __init__(self, tracer: Any, span: Any, context: Any) -> None:
        self._tracer, self._span, self._context = tracer, span, context

    def answered(self, ticket: Ticket, done: CompletionOutput) -> None:
        """Spans ``queue``, ``prefill`` and ``decode`` of an answer; those it never reached are left out."""
        stats, admitted = done.stats, ticket.admitted
        facts = {"choice": ticket.first_choice + done.index, "finish_reason": done.finish_reason.value}
        if admitted is None:
            return
        self._add("queue", ticket.created, admitted, facts)
        if stats.first_token_seconds is None:
            return
        first = admitted + stats.first_token_seconds
        counts = {"prompt_tokens": stats.prompt_tokens, "cached_tokens": stats.cached_tokens}
        self._add("prefill", admitted, first, facts | counts)
        counts = {name: getattr(stats, name) for name in ("rounds", "drafted", "verified", "accepted", "preemptions")}
        counts["completion_tokens"] = len(done.token_ids)
        self._add("decode", first, first + stats.decode_seconds, facts | counts)

    def close(self) -> None:
        """End the request's span."""
        self._span.end()

    def _add(self, name: str, start: float, end: float, facts: Mapping[str, Any]) -> None:
        """A span between two times of the monotonic clock."""
        offset = time.time() - time.monotonic()
        span = self._tracer.start_span(
            name, context=self._context, start_time=int((start + offset) * 1e9), attributes=dict(facts)
        )
        span.end(int((end + offset) * 1e9))
