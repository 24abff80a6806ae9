"""A request on its way through the engine, and the mailbox its answers arrive in."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dspark.core import Piece, SamplingParams, TokenLogprobs
from dspark.engine import CompletionOutput, StepOutput
from dspark.serving.errors import ApiError
from dspark.verify import TokenConstraint


@dataclass(slots=True)
class Delta:
    """What has been added to one answer since it was last looked at; the meaning is that of StepOutput."""

    choice: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    completion: CompletionOutput | None = None

    def add(self, later: StepOutput | Delta) -> None:
        """Take in one step more, or several."""
        self.text += later.text
        self.token_ids.extend(later.token_ids)
        self.logprobs.extend(later.logprobs or ())
        self.pieces.extend(later.pieces)
        self.completion = later.completion


class Mailbox:
    """Answers of one HTTP request between the engine's thread and the event loop.

    What is not fetched in time is merged, one delta per answer: a slow reader costs no more memory than its
    answers, and never makes the engine wait.

    Args:
        loop: the event loop that reads.
        num_choices: answers that are to come.
        streamed: whether the reader wants to know of every step; else only of answers that have ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, num_choices: int, *, streamed: bool = True) -> None:
        self.loop, self._streamed = loop, streamed
        self._open = num_choices
        self._lock = threading.Lock()
        self._pending: dict[int, Delta] = {}
        self._error: ApiError | None = None
        self._news = asyncio.Event()

    def put(self, choice: int, output: StepOutput) -> bool:
        """Add to an answer (any thread); true if the reader is to be told of it, by :meth:`wake`."""
        with self._lock:
            delta = self._pending.get(choice)
            if delta is None:
                delta = self._pending[choice] = Delta(choice)
            delta.add(output)
        return self._streamed or output.completion is not None

    def fail(self, error: ApiError) -> None:
        """End everything with an error (any thread); :meth:`wake` tells the reader."""
        with self._lock:
            self._error = self._error or error

    def wake(self) -> None:
        """Tell the reader that there is something (event loop only)."""
        self._news.set()

    async def take(self) -> list[Delta]:
        """What is new, waiting for it; nothing once all answers have ended.

        Raises:
            ApiError: the request has failed.
        """
        while self._open:
            with self._lock:
                found, self._pending = self._pending, {}
                error = self._error
            if found:
                self._open -= sum(delta.completion is not None for delta in found.values())
                return list(found.values())
            if error is not None:
                raise error
            await self._news.wait()
            self._news.clear()
        return []


def wake_all(mailboxes: list[Mailbox]) -> None:
    """Tell several readers of one event loop."""
    for mailbox in mailboxes:
        mailbox.wake()


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """One prompt of an HTTP request, with all that the engine needs to answer it.

    Attributes:
        name: unique.
        prompt_ids: the prompt.
        params: sampling options.
        constraint: makes what restricts the form of an answer; None for none.
        client: who asks; clients share the engine fairly.
        priority: smaller goes first.
        deadline: on the monotonic clock; None for none.
        mailbox: where answers go.
        first_choice: number of the first answer among those of the HTTP request.
        open_answers: answers that have not ended.
        created: on the monotonic clock.
        admitted: when the engine took it; None before.
    """

    name: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    mailbox: Mailbox
    constraint: Callable[[], TokenConstraint] | None = None
    client: str = ""
    priority: int = 0
    deadline: float | None = None
    first_choice: int = 0
    open_answers: int = field(init=False)
    created: float = field(default_factory=time.monotonic)
    admitted: float | None = None

    def __post_init__(self) -> None:
        self.open_answers = self.params.n

    @property
    def cost(self) -> int:
        """Tokens it may take at most, for fairness; an open end counts as a page of text."""
        return len(self.prompt_ids) + self.params.n * (self.params.max_tokens or 512)
