"""Bad clients and bad days."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest

import dspark.engine.worker as worker_module
from dspark.engine import StepOutput

from .tiny import Live, live, tiny_llm, wait_for

CHAT = "/v1/chat/completions"


def body(**options: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "the the"}], "temperature": 0} | options


def pages_in_use(running: Live) -> int:
    return running.service.llm.engine.pool_stats().used


def raw(port: int, payload: dict[str, Any], *, buffer: int | None = None) -> socket.socket:
    """A connection that has sent a chat request and reads nothing; ``buffer`` is what it takes in unread, in bytes."""
    data = json.dumps(payload).encode()
    connection = socket.socket()
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect(("127.0.0.1", port))
    head = (f"POST {CHAT} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(data)}")
    connection.sendall("\r\n".join((*head, "", "")).encode() + data)
    return connection


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_is_forgotten_within_a_step(drafting: Live, stream: bool) -> None:
    loop = drafting.service.loop
    connection = raw(drafting.port, body(max_tokens=480, stream=stream, n=2))
    wait_for(lambda: not loop.idle)
    connection.close()
    wait_for(lambda: loop.idle)
    wait_for(lambda: not drafting.service.llm.engine.has_unfinished())
    assert pages_in_use(drafting) == 0
    drafting.service.llm.engine.check_integrity()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'"text"', 400),
        (b"{}", 400),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400),
        (b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}', 400),
        (b'{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}', 400),
        (b'{"messages": [{"role": "user", "content": "a"}], "n": 99999999999999999999999}', 400),
        (b'{"messages": [{"role": "robot", "content": "a"}]}', 400),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', 400),
        (b"[" * 100_000, 400),
        (b" " * (5 << 20), 413),
    ],
)
def test_bad_bodies_get_a_reason(drafting: Live, content: bytes, status: int) -> None:
    answer = httpx.post(drafting.url + CHAT, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["message"]
    assert error["type"] == "invalid_request_error"


def test_unknown_paths_and_methods_have_the_same_shape(drafting: Live) -> None:
    assert httpx.get(drafting.url + "/nothing").json()["error"]["message"]
    assert httpx.get(drafting.url + CHAT).status_code == 405
    assert httpx.post(drafting.url + CHAT, content=b"a=1").status_code == 400


def test_information(drafting: Live) -> None:
    get = lambda path: httpx.get(drafting.url + path)  # noqa: E731
    assert get("/health").status_code == get("/health/live").status_code == get("/health/ready").status_code == 200
    assert get("/version").json()["drafter"] == "ngram"
    assert get("/docs").status_code == 200
    assert CHAT in get("/openapi.json").json()["paths"]
    post = lambda path, data: httpx.post(drafting.url + path, json=data)  # noqa: E731
    ids = post("/tokenize", {"prompt": "the abc"}).json()["tokens"]
    assert post("/detokenize", {"tokens": ids}).json() == {"prompt": "the abc"}
    chat = post("/tokenize", {"messages": [{"role": "user", "content": "x"}]}).json()
    assert post("/detokenize", {"tokens": chat["tokens"]}).json()["prompt"] == "user: x<|end|>\nassistant: "
    assert post("/detokenize", {"tokens": [-1]}).status_code == 400
    assert post("/tokenize", {}).status_code == 400


def test_metrics(drafting: Live) -> None:
    httpx.post(drafting.url + CHAT, json=body(max_tokens=20), timeout=60)
    text = httpx.get(drafting.url + "/metrics").text
    for name in (
        'dspark_step_seconds_bucket{activity="verify"', "dspark_step_rows_sum", "dspark_verify_length_tokens_count",
        'dspark_accepted_tokens_total{position="0"}', 'dspark_kv_pages{state="free"}', "dspark_queue_seconds_count",
        "dspark_first_token_seconds_count", 'dspark_answers_total{finish_reason="length"}',
    ):  # fmt: skip
        assert name in text


def test_keys_are_asked_for() -> None:
    with live(tiny_llm("none", max_requests=2), api_keys=("one", "two")) as running:
        ask = lambda **headers: httpx.get(running.url + "/v1/models", headers=headers).status_code  # noqa: E731
        assert ask() == ask(Authorization="Bearer three") == ask(Authorization="one") == 401
        assert ask(Authorization="Bearer one") == ask(Authorization="Bearer two") == 200
        assert httpx.get(running.url + "/health").status_code == 200
        assert httpx.get(running.url + "/v1/models").json()["error"]["code"] == "invalid_api_key"


@contextmanager
def no_steps(running: Live) -> Iterator[None]:
    """While the body runs the engine does not get on with its work."""
    core, gate = running.service.llm.engine, threading.Event()
    step = core.step

    def held_step() -> list[StepOutput]:
        gate.wait(60)
        return step()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "step", held_step)
        try:
            yield
        finally:
            gate.set()


def test_a_full_queue_says_when_to_come_back() -> None:
    with live(tiny_llm("none", max_requests=1), max_queue=2) as running:
        with no_steps(running):
            long = body(max_tokens=480, stream=True)
            held = [raw(running.port, long)]
            wait_for(lambda: running.service.llm.engine.has_unfinished())
            held += [raw(running.port, long) for _ in range(2)]
            wait_for(lambda: len(running.service.loop._room) == 2)
            refused = httpx.post(running.url + CHAT, json=body())
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        for connection in held:
            connection.close()
        wait_for(lambda: running.service.loop.idle)
        assert httpx.post(running.url + CHAT, json=body(max_tokens=2)).status_code == 200


def test_priorities_go_first() -> None:
    with live(tiny_llm("none", max_requests=1)) as running:
        done: list[str] = []

        def ask(name: str, priority: int) -> None:
            httpx.post(running.url + CHAT, json=body(max_tokens=30, priority=priority), timeout=60)
            done.append(name)

        threads = []
        with no_steps(running):
            first = raw(running.port, body(max_tokens=300, stream=True))
            wait_for(lambda: running.service.llm.engine.has_unfinished())
            for place, (name, priority) in enumerate((("late", 5), ("normal", 0), ("soon", -5)), start=1):
                threads.append(threading.Thread(target=ask, args=(name, priority)))
                threads[-1].start()
                wait_for(lambda count=place: len(running.service.loop._room) == count)
        first.close()
        for thread in threads:
            thread.join(60)
        assert done == ["soon", "normal", "late"]


def test_deadlines_end_waiting_and_running_requests() -> None:
    with live(tiny_llm("none", max_requests=1)) as running:
        running_one = httpx.post(running.url + CHAT, json=body(max_tokens=480, timeout=0.05), timeout=60)
        assert running_one.status_code == 408
        assert running_one.json()["error"]["code"] == "deadline"
        held = raw(running.port, body(max_tokens=480, stream=True))
        wait_for(lambda: not running.service.loop.idle)
        late = httpx.post(running.url + CHAT, json=body(timeout=0.01, max_tokens=480), timeout=60)
        assert late.status_code == 408
        held.close()
        wait_for(lambda: running.service.loop.idle)
        assert pages_in_use(running) == 0


def test_a_request_without_numbers_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = worker_module.judge_rows

    def judged(shares: Any, logits: Any, *args: Any) -> Any:
        owner = [share.sequence.request.params.seed for share in shares for _ in share.logit_rows]
        spoiled = logits.clone()
        spoiled[[seed == 13 for seed in owner]] = float("nan")
        return inner(shares, spoiled, *args)

    monkeypatch.setattr(worker_module, "judge_rows", judged)
    with live(tiny_llm("ngram")) as running:
        results: dict[int, Any] = {}

        def ask(seed: int) -> None:
            results[seed] = httpx.post(running.url + CHAT, json=body(max_tokens=40, seed=seed), timeout=60)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in (11, 12, 13, 14)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [results[seed].status_code for seed in (11, 12, 13, 14)] == [200, 200, 500, 200]
        assert "not finite" in results[13].json()["error"]["message"]
        assert httpx.get(running.url + "/health").status_code == 200


def test_a_step_that_fails_is_tried_again_then_the_latest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tiny_llm("none")) as running:
        core = running.service.llm.engine
        forward, left = core.target.forward, [1]

        def failing(batch: Any, **options: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise RuntimeError("injected")
            return forward(batch, **options)

        monkeypatch.setattr(core.target, "forward", failing)
        assert httpx.post(running.url + CHAT, json=body(max_tokens=3), timeout=60).status_code == 200
        left[0] = 2
        answer = httpx.post(running.url + CHAT, json=body(max_tokens=3), timeout=60)
        assert answer.status_code == 500
        assert "injected" not in answer.text
        assert httpx.post(running.url + CHAT, json=body(max_tokens=3), timeout=60).status_code == 200


def test_a_slow_reader_stalls_nobody_and_gets_everything(drafting: Live) -> None:
    slow = raw(drafting.port, body(max_tokens=250, n=8, stream=True, logprobs=True, top_logprobs=20), buffer=4096)
    start = time.monotonic()
    quick = httpx.post(drafting.url + CHAT, json=body(max_tokens=5), timeout=60)
    assert quick.status_code == 200
    assert time.monotonic() - start < 20
    wait_for(lambda: drafting.service.loop.idle)
    received = b""
    while b"[DONE]" not in received:
        received += slow.recv(65536)
    slow.close()
    events = [json.loads(line[6:]) for line in received.split(b"\n") if line.startswith(b"data: {")]
    choices = [event["choices"][0] for event in events]
    text = "".join(choice["delta"].get("content", "") for choice in choices if choice["index"] == 7)
    assert len(choices) < 8 * 250, "what the client did not fetch in time came merged"
    whole = httpx.post(drafting.url + CHAT, json=body(max_tokens=250), timeout=60).json()
    assert text == whole["choices"][0]["message"]["content"]


@pytest.mark.parametrize("seconds", [20.0, 0.0], ids=["finishes", "is ended"])
def test_shutting_down_ends_streams_cleanly(seconds: float) -> None:
    with live(tiny_llm("none"), shutdown_seconds=seconds) as running:
        connection = raw(running.port, body(max_tokens=200, stream=True))
        assert b"200 OK" in connection.recv(4096)
        running.server.should_exit = True
        received = b""
        while part := connection.recv(65536):
            received += part
        connection.close()
        assert b"data: [DONE]" in received
        assert received.endswith(b"0\r\n\r\n"), "the stream is closed as HTTP wants it"
        assert (b"shutting_down" in received) == (seconds == 0.0)
        assert (b'"finish_reason":"length"' in received) == (seconds > 0.0)
    assert not running.service.loop.alive
    assert pages_in_use(running) == 0


@pytest.mark.parametrize("stream", [True, False])
def test_readers_are_told_when_the_engine_dies(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*unused: object, **more: object) -> None:
        raise RuntimeError("on purpose")

    with live(tiny_llm("none")) as running:
        monkeypatch.setattr(running.service.loop._metrics, "step", dies)
        monkeypatch.setattr(running.service.llm.engine, "abort", dies)
        answer = httpx.post(running.url + CHAT, json=body(max_tokens=50, stream=stream), timeout=20)
        assert answer.status_code == (200 if stream else 503)
        assert '"error"' in answer.text
        wait_for(lambda: not running.service.loop.alive)  # readers are told first
