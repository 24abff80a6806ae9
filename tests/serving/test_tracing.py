"""Traces: what a request spent where, within the caller's trace."""

from __future__ import annotations

import dataclasses
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2 as httpx
import pytest

from dspark.core import InputError
from dspark.serving.service import Service
from dspark.serving.tracing import OtelTracing

from .test_robustness import CHAT, body
from .tiny import Live, live, settings, tiny_llm, wait_for

MISSING = "tracing is tested with opentelemetry-sdk (extra otel)"


def test_spans_of_a_request() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=MISSING)
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=MISSING)
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=MISSING)
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    service = dataclasses.replace(
        Service.of(tiny_llm("ngram", max_requests=4), settings()), tracing=OtelTracing(provider)
    )
    running = Live(service)
    running.start()
    try:
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        httpx.post(running.url + CHAT, json=body(max_tokens=20, n=2), headers=headers, timeout=60)
        wait_for(lambda: len(exporter.get_finished_spans()) == 7)
    finally:
        running.stop()
    spans: dict[str, list[Any]] = {}
    for span in exporter.get_finished_spans():
        spans.setdefault(span.name, []).append(span)
        assert f"{span.context.trace_id:032x}" == trace
    assert {name: len(found) for name, found in spans.items()} == {"request": 1, "queue": 2, "prefill": 2, "decode": 2}
    (request,) = spans["request"]
    assert (request.attributes["path"], request.attributes["answers"]) == (CHAT, 2)
    for queue, prefill, decode in zip(spans["queue"], spans["prefill"], spans["decode"], strict=True):
        assert all(span.parent.span_id == request.context.span_id for span in (queue, prefill, decode))
        assert queue.start_time <= queue.end_time <= prefill.end_time <= decode.end_time
        assert abs(queue.end_time - prefill.start_time) < 1e6, "nanoseconds"
        assert decode.attributes["completion_tokens"] == 20
        assert decode.end_time <= request.end_time + 1e8


def test_spans_arrive_at_an_endpoint() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason=MISSING)
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *unused: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
        with live(tiny_llm("none", max_requests=2), otel_endpoint=endpoint) as running:
            httpx.post(running.url + CHAT, json=body(max_tokens=8), timeout=60)
        wait_for(lambda: received)  # what is left is sent when the server stops
        collector.shutdown()
    assert {path for path, _ in received} == {"/v1/traces"}
    sent = b"".join(data for _, data in received)
    assert all(name in sent for name in (b"request", b"queue", b"prefill", b"decode", b"dspark"))


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InputError, match=r"pip install 'dspark\[otel\]'"):
        OtelTracing.to_endpoint("http://127.0.0.1:4318/v1/traces")
