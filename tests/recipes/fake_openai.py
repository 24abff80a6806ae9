"""A tiny server that speaks as much of the OpenAI protocol as chat completions need, and misbehaves on request."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What the server does with one request.

    ``cut`` closes the connection after half the body; ``delay`` is in seconds.
    """

    content: str | None = "fine"
    status: int = 200
    finish: str | None = "stop"
    thoughts: str | None = None
    prompt_tokens: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    delay: float = 0.0


Behaviour = Callable[[list[dict[str, str]], int], Reply]
"""From messages, and how often they came before, to a reply."""


class FakeOpenAI:
    """A running server; ``requests`` holds the bodies it got, ``most`` how many it worked on at a time."""

    def __init__(self, behave: Behaviour, models: tuple[str, ...] = ("tiny",)) -> None:
        self.behave, self.models = behave, models
        self.requests: list[dict[str, Any]] = []
        self.most = self._now = 0
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, body: dict[str, Any]) -> Reply:
        """Note a request and decide about it."""
        with self._lock:
            self.requests.append(body)
            self._now += 1
            self.most = max(self.most, self._now)
            key = json.dumps(body["messages"])
            self._times[key] += 1
            times = self._times[key]
        reply = self.behave(body["messages"], times)
        time.sleep(reply.delay)
        with self._lock:
            self._now -= 1
        return reply

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(behave: Behaviour, **options: Any) -> Iterator[FakeOpenAI]:
    """A server for the length of the body."""
    fake = FakeOpenAI(behave, **options)
    try:
        yield fake
    finally:
        fake.close()


class _Handler(BaseHTTPRequestHandler):
    fake: FakeOpenAI
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.fake.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.fake.take(body)
        if reply.status != 200:
            self._send(reply.status, {"error": {"message": f"refused with {reply.status}"}}, reply)
            return
        message = {"role": "assistant", "content": reply.content}
        if reply.thoughts is not None:
            message["reasoning_content"] = reply.thoughts
        answer: dict[str, Any] = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
        }
        if reply.prompt_tokens is not None:
            answer["usage"] = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": 1, "total_tokens": 1}
        self._send(200, answer, reply)

    def _send(self, status: int, value: Any, reply: Reply | None = None) -> None:
        data = json.dumps(value).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, text in (reply.headers if reply else {}).items():
                self.send_header(name, text)
            self.end_headers()
            cut = reply is not None and reply.cut
            self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.close_connection = True
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        """Stay quiet."""
