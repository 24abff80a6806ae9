"""What Prometheus gets to see."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dspark.engine import CompletionOutput, StepStats
from dspark.kvcache import PoolStats
from dspark.serving.ticket import Ticket

_STEP = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0)
_LATENCY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LENGTHS = tuple(range(17))


class Metrics:
    """All metrics of one server, in a registry of their own; written by the engine's thread and by refusals."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        place = {"registry": self.registry, "namespace": "dspark"}
        self._step_seconds = Histogram(
            "step_seconds", "Time of an engine step by activity.", ["activity"], buckets=_STEP, **place
        )
        self._activities = {name: self._step_seconds.labels(name) for name in ("draft", "verify", "sample", "host")}
        self._rows = Histogram("step_rows", "Target rows of a step.", buckets=_ROWS, **place)
        self._prefill_rows = Counter("prefill_rows", "Target rows that were prompt tokens.", **place)
        self._verify_length = Histogram(
            "verify_length_tokens", "Drafts verified, per answer and step.", buckets=_LENGTHS, **place
        )
        self._tokens = Counter("generated_tokens", "Tokens added to answers.", **place)
        self._running = Gauge("running_answers", "Answers that hold KV pages.", **place)
        self._waiting = Gauge("waiting_answers", "Answers that the engine has no room for yet.", **place)
        self._queue = Gauge("queued_requests", "Requests that wait for the engine.", **place)
        self._pages = Gauge("kv_pages", "Pages of the KV pool.", ["state"], **place)
        self._states = {name: self._pages.labels(name) for name in ("used", "cached", "free")}
        self.refused = Counter("refused_requests", "Requests refused because the queue was full.", **place)
        self.ended = Counter("ended_requests", "Requests that ended without an answer.", ["reason"], **place)
        self._answers = Counter("answers", "Answers that ended.", ["finish_reason"], **place)
        self._prompt_tokens = Counter("prompt_tokens", "Prompt tokens of ended answers.", **place)
        self._cached_tokens = Counter("cached_prompt_tokens", "Those found in the prefix cache.", **place)
        self._preemptions = Counter("preemptions", "Answers that lost their pages for a while.", **place)
        self._rounds = Counter("rounds", "Steps that continued an answer.", **place)
        self._drafted = Counter("drafted_tokens", "Tokens proposed.", **place)
        self._verified = Counter("verified_tokens", "Drafts verified, by position.", ["position"], **place)
        self._reached = Counter("reached_tokens", "Those with all earlier ones accepted.", ["position"], **place)
        self._accepted = Counter("accepted_tokens", "Drafts accepted, by position.", ["position"], **place)
        self.queue_seconds = Histogram("queue_seconds", "Wait for the engine.", buckets=_LATENCY, **place)
        self._first = Histogram("first_token_seconds", "Arrival to first token.", buckets=_LATENCY, **place)
        self._each = Histogram("per_token_seconds", "Mean time per further token.", buckets=_PER_TOKEN, **place)
        self._whole = Histogram("request_seconds", "Arrival to the end of an answer.", buckets=_LATENCY, **place)
        self._last: StepStats | None = None

    def step(self, stats: StepStats, pool: PoolStats, queued: int) -> None:
        """Note a step."""
        self._queue.set(queued)
        for name, gauge in self._states.items():
            gauge.set(getattr(pool, name))
        if stats is self._last:
            return
        self._last = stats
        spent = (stats.draft_seconds, stats.forward_seconds, stats.sample_seconds, stats.host_seconds)
        for activity, seconds in zip(self._activities.values(), spent, strict=True):
            activity.observe(seconds)
        self._rows.observe(stats.rows)
        self._prefill_rows.inc(stats.prefill_rows)
        for length in stats.verify_lens:
            self._verify_length.observe(length)
        self._tokens.inc(stats.committed)
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)

    def answered(self, ticket: Ticket, done: CompletionOutput) -> None:
        """Note an answer that ended."""
        stats = done.stats
        self._answers.labels(done.finish_reason.value).inc()
        self._prompt_tokens.inc(stats.prompt_tokens)
        self._cached_tokens.inc(stats.cached_tokens)
        self._preemptions.inc(stats.preemptions)
        self._rounds.inc(stats.rounds)
        self._drafted.inc(stats.drafted)
        for counter, counts in (
            (self._verified, stats.verified_at),
            (self._reached, stats.reached_at),
            (self._accepted, stats.accepted_at),
        ):
            for position, count in enumerate(counts):
                counter.labels(position).inc(count)
        self._whole.observe(time.monotonic() - ticket.created)
        if stats.first_token_seconds is not None and ticket.admitted is not None:
            self._first.observe(ticket.admitted - ticket.created + stats.first_token_seconds)
        if len(done.token_ids) > 1:
            self._each.observe(stats.decode_seconds / (len(done.token_ids) - 1))

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
