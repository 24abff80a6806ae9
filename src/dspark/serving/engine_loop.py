"""The one thread that owns the engine: takes tickets in, steps, and puts what comes out into mailboxes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from dspark.core import DsparkError, InputError, RequestsFailedError
from dspark.engine import EngineCore, StepOutput
from dspark.serving.errors import ApiError, bad_request, deadline_passed, engine_failed, queue_full, shutting_down
from dspark.serving.metrics import Metrics
from dspark.serving.pace import Pace
from dspark.serving.ticket import Mailbox, Ticket, wake_all
from dspark.serving.waiting_room import WaitingRoom

_LOG = logging.getLogger("dspark.serving")


class EngineLoop:
    """Runs an engine on a thread of its own.

    A ticket waits in the waiting room until the engine has room for all its answers. Cancelled and overdue tickets
    leave before the next step. A request that fails, fails alone: the engine names it, or, where it cannot, the latest
    arrivals are taken out until a step succeeds.

    Args:
        core: the engine; nobody else may use it from now on.
        max_queue: most tickets that wait.
        metrics: gets told what happens.
    """

    def __init__(self, core: EngineCore, *, max_queue: int, metrics: Metrics) -> None:
        self._core, self._metrics = core, metrics
        self._room = WaitingRoom(max_queue)
        self._lock = threading.Condition()
        self._cancelled: list[Ticket] = []
        self._active: dict[str, Ticket] = {}
        self._touched: set[Mailbox] = set()
        self._closing = self._ending = False
        self._failures = 0
        self._pace = Pace()
        metrics.watch(lambda: len(self._room), self._users)
        self._thread = threading.Thread(target=self._run, name="dspark-engine", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def ready(self) -> bool:
        """Whether new requests are taken."""
        return self.alive and not self._closing

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being answered."""
        with self._lock:
            return not (len(self._room) or self._active)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Line up the tickets of an HTTP request, all or none (any thread).

        Raises:
            ApiError: the queue is full, or the server is going down.
        """
        with self._lock:
            if not self.ready:
                raise shutting_down()
            if not self._room.fits(len(tickets)):
                self._metrics.refused.inc()
                raise queue_full(self._pace.seconds_for(len(self._room)))
            self._room.add(tickets)
            self._lock.notify()

    def cancel(self, tickets: Iterable[Ticket]) -> None:
        """Nobody wants these any more; they leave before the next step (any thread). Ended ones are no error."""
        with self._lock:
            self._cancelled.extend(ticket for ticket in tickets if ticket.open_answers)
            self._lock.notify()

    async def drain(self, seconds: float) -> None:
        """Take nothing new, give what is there some time to end, then end it with an error, and stop the thread."""
        self._closing = True
        limit = time.monotonic() + seconds
        while self.alive and not self.idle and time.monotonic() < limit:
            await asyncio.sleep(0.02)
        with self._lock:
            self._ending = True
            self._lock.notify()
        if self.alive:
            await asyncio.to_thread(self._thread.join)

    def _users(self) -> int:
        """Clients that wait or are being answered (any thread)."""
        with self._lock:
            return len({ticket.client for ticket in (*self._room, *self._active.values())})

    def _run(self) -> None:
        try:
            while self._wait():
                self._let_go()
                self._admit()
                self._step()
                self._wake()
        except Exception:
            _LOG.exception("the engine's thread has died")
        with self._lock:
            self._closing = True
            left = [*self._room, *self._active.values()]
        for ticket in left:
            with suppress(Exception):  # whatever state the engine is in, everyone gets told
                self._fail(ticket, shutting_down())
            self._tell(ticket, shutting_down())
        self._wake()

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when it is over."""
        with self._lock:
            while not (self._ending or self._active or self._cancelled or len(self._room)):
                self._lock.wait()
            return not self._ending

    def _let_go(self) -> None:
        """Part with tickets that nobody waits for, or that took too long."""
        with self._lock:
            cancelled, self._cancelled = self._cancelled, []
            now = time.monotonic()
            overdue = [t for t in (*self._room, *self._active.values()) if t.deadline is not None and t.deadline < now]
        for ticket in cancelled:
            if self._forget(ticket):
                self._metrics.ended.labels("cancelled").inc()
        for ticket in overdue:
            self._fail(ticket, deadline_passed())

    def _admit(self) -> None:
        """Hand tickets to the engine as long as it has room for all their answers."""
        with self._lock:
            busy = sum(ticket.open_answers for ticket in self._active.values())
            while (ticket := self._room.first()) is not None:
                if busy and busy + ticket.params.n > self._core.options.max_requests:
                    break
                self._active[ticket.name] = self._room.pop()
                busy += ticket.params.n
        for ticket in [ticket for ticket in self._active.values() if ticket.admitted is None]:
            self._begin(ticket)

    def _begin(self, ticket: Ticket) -> None:
        ticket.admitted = time.monotonic()
        self._metrics.queue_seconds.observe(ticket.admitted - ticket.created)
        try:
            self._core.add_request(
                ticket.prompt_ids, ticket.params, request_id=ticket.name, constraint=ticket.constraint
            )
        except InputError as error:
            self._fail(ticket, bad_request(str(error)))
        except Exception as error:
            _LOG.exception("request %s could not be started", ticket.name)
            self._fail(ticket, engine_failed(f"the request could not be started: {type(error).__name__}"))

    def _step(self) -> None:
        try:
            outputs = self._core.step() if self._core.has_unfinished() else []
        except RequestsFailedError as error:
            for name in error.request_ids:
                _LOG.error("request %s failed: %s", name, error)
                self._fail(self._active[name], engine_failed(str(error)))
            return
        except Exception as error:
            self._recover(error)
            return
        self._failures = 0
        self._metrics.step(self._core.last_step, self._core.pool_stats(), busy=self._core.has_unfinished())
        for output in outputs:
            self._deliver(output)

    def _recover(self, error: Exception) -> None:
        """A step failed and nobody is named: try once more, then without the latest arrival."""
        self._failures += 1
        _LOG.error("a step failed", exc_info=error)
        if self._failures > 1:
            said = str(error) if isinstance(error, DsparkError) else type(error).__name__
            latest = max(self._active.values(), key=lambda ticket: ticket.admitted or 0.0)
            self._fail(latest, engine_failed(f"the engine could not go on with this request: {said}"))

    def _deliver(self, output: StepOutput) -> None:
        ticket = self._active.get(output.request_id)
        if ticket is None:
            return
        if output.completion is not None:
            self._metrics.answered(ticket, output.completion)
            ticket.open_answers -= 1
            if not ticket.open_answers:
                self._pace.tick()
                with self._lock:
                    del self._active[ticket.name]
        if ticket.mailbox.put(ticket.first_choice + output.index, output):
            self._touched.add(ticket.mailbox)

    def _fail(self, ticket: Ticket, error: ApiError) -> None:
        """End a ticket with an error; once one of an HTTP request has failed, all of it has."""
        if self._forget(ticket):
            self._metrics.ended.labels(error.code or "refused").inc()
            self._tell(ticket, error)

    def _tell(self, ticket: Ticket, error: ApiError) -> None:
        """Put an error into a mailbox; its reader is woken with the next ``_wake``."""
        ticket.mailbox.fail(error)
        self._touched.add(ticket.mailbox)

    def _forget(self, ticket: Ticket) -> bool:
        """Take a ticket out, wherever it is; False if it was gone already."""
        with self._lock:
            waited = self._room.remove(ticket)
            active = self._active.pop(ticket.name, None) is not None
        if active:
            self._core.abort(ticket.name)
        return waited or active

    def _wake(self) -> None:
        """Tell the readers of everything that was touched, each event loop once."""
        touched, self._touched = self._touched, set()
        by_loop: dict[asyncio.AbstractEventLoop, list[Mailbox]] = {}
        for mailbox in touched:
            by_loop.setdefault(mailbox.loop, []).append(mailbox)
        for loop, mailboxes in by_loop.items():
            with suppress(RuntimeError):  # the loop has been closed, nobody reads any more
                loop.call_soon_threadsafe(wake_all, mailboxes)
