"""What Prometheus gets to see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from dspark.engine import CompletionOutput, StepStats
from dspark.kvcache import PoolStats
from dspark.scheduling import StepCosts
from dspark.serving.draft_metrics import DraftMetrics
from dspark.serving.profile_metrics import ProfileMetrics
from dspark.serving.ticket import Ticket

_PREFIX = "dspark"
_STEP = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0)
_LATENCY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """All metrics of one server, in a registry of their own; written by the engine's thread and by refusals."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        count, gauge, spread = self._counter, self._gauge, self._histogram
        step = spread("step_seconds", "Time of an engine step by activity.", _STEP, "activity")
        self._activities = [step.labels(name) for name in ("draft", "verify", "sample", "host")]
        self._rows = spread("step_rows", "Target rows of a step.", _ROWS)
        self._prefill_rows = count("prefill_rows", "Target rows that were prompt tokens.")
        self._rounds = count("rounds", "Times that a step continued an answer.")
        self._drafts = DraftMetrics(self.registry, _PREFIX)
        self._tokens = count("generated_tokens", "Tokens added to answers.")
        self._running = gauge("running_answers", "Answers that hold KV pages.")
        self._waiting = gauge("waiting_answers", "Answers that the engine has no room for yet.")
        self._queue = gauge("queued_requests", "Requests that wait for the engine.")
        self._users = gauge("users", "Clients with a request that waits or is being answered.")
        pages = gauge("kv_pages", "Pages of the KV pool.", "state")
        self._pages = {name: pages.labels(name) for name in ("used", "cached", "free")}
        self.refused = count("refused_requests", "Requests refused because the queue was full.")
        self.ended = count("ended_requests", "Requests that ended without an answer.", "reason")
        self._answers = count("answers", "Answers that ended.", "finish_reason")
        self._prompt_tokens = count("prompt_tokens", "Prompt tokens of ended answers.")
        self._cached_tokens = count("cached_prompt_tokens", "Those found in the prefix cache.")
        self._preemptions = count("preemptions", "Times that an answer lost its pages for a while.")
        self.queue_seconds = spread("queue_seconds", "Wait for the engine.", _LATENCY)
        self._first = spread("first_token_seconds", "Arrival to first token.", _LATENCY)
        self._each = spread("per_token_seconds", "Mean time per further token.", _PER_TOKEN)
        self._whole = spread("request_seconds", "Arrival to the end of an answer.", _LATENCY)
        self._last: StepStats | None = None

    def watch(self, queued: Callable[[], int], users: Callable[[], int]) -> None:
        """Say where to look for how many wait, and for how many clients there are."""
        self._queue.set_function(queued)
        self._users.set_function(users)

    def describe(self, facts: Mapping[str, str]) -> None:
        """Show facts that stay as they are."""
        Info("server", "What this server is.", namespace=_PREFIX, registry=self.registry).info(dict(facts))

    def profile(self, costs: StepCosts, max_rows: int, context: Callable[[], float]) -> None:
        """Show what the policy expects steps to cost."""
        self.registry.register(ProfileMetrics(costs, max_rows, context, _PREFIX))

    def step(self, stats: StepStats, pool: PoolStats, *, busy: bool) -> None:
        """Note a step.

        Args:
            stats: of the latest step; the same again if there was none since.
            pool: pages after it.
            busy: whether anything is left to do; if not, nothing runs, whatever the latest step said.
        """
        self._running.set(stats.running if busy else 0)
        self._waiting.set(stats.waiting if busy else 0)
        for name, pages in self._pages.items():
            pages.set(getattr(pool, name))
        if stats is self._last:
            return
        self._last = stats
        spent = (stats.draft_seconds, stats.forward_seconds, stats.sample_seconds, stats.host_seconds)
        for activity, seconds in zip(self._activities, spent, strict=True):
            activity.observe(seconds)
        self._rows.observe(stats.rows)
        self._prefill_rows.inc(stats.prefill_rows)
        self._rounds.inc(len(stats.rounds))
        self._drafts.step(stats.verify_lens, stats.rounds)
        self._tokens.inc(stats.committed)

    def answered(self, ticket: Ticket, done: CompletionOutput) -> None:
        """Note an answer that ended."""
        stats = done.stats
        self._answers.labels(done.finish_reason.value).inc()
        self._prompt_tokens.inc(stats.prompt_tokens)
        self._cached_tokens.inc(stats.cached_tokens)
        self._preemptions.inc(stats.preemptions)
        self._whole.observe(time.monotonic() - ticket.created)
        if stats.first_token_seconds is not None and ticket.admitted is not None:
            self._first.observe(ticket.admitted - ticket.created + stats.first_token_seconds)
        if len(done.token_ids) > 1:
            self._each.observe(stats.decode_seconds / (len(done.token_ids) - 1))

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, namespace=_PREFIX, registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, namespace=_PREFIX, registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, what, labels, buckets=buckets, namespace=_PREFIX, registry=self.registry)
