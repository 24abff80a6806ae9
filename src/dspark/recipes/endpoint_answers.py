"""An OpenAI-compatible endpoint answers prompts, many conversations at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from dspark.core import InputError
from dspark.data.chat_template import ChatTemplate
from dspark.data.dialogue import Dialogue
from dspark.data.prompt_turns import BadPromptError, PromptTurns
from dspark.recipes.endpoint import Endpoint, Line, UnreachableError
from dspark.recipes.regeneration_plan import Outcome, RegenerationPlan

_COMPLETE = {"stop": True, "length": False}
"""Reasons for an answer's end, and whether it is complete then."""

Commit = Callable[[Sequence[Outcome]], None]


class EndpointAnswers:
    """Answers of a server, in the tokens of the target that it serves.

    Args:
        endpoint: the server.
        template: how the target is spoken to.
        plan: how to answer.

    Attributes:
        template: the same.
        counted, differing: answers for which the server said how many tokens the prompt had, and those where that was
            another number than ours: it renders prompts in another way, or serves another model.
    """

    def __init__(self, endpoint: Endpoint, template: ChatTemplate, plan: RegenerationPlan) -> None:
        self._endpoint, self._plan = endpoint, plan
        self.template = template
        self.counted, self.differing = 0, 0
        self._alive, self._ever_alive = False, False
        self._lost: list[Outcome] = []

    def run(self, prompts: Iterator[PromptTurns], commit: Commit) -> None:
        """Answer all prompts; each is handed over as soon as it is done, in no order.

        Raises:
            InputError: the endpoint does not answer at all, or not such requests.
        """
        asyncio.run(self._run(prompts, commit))

    async def _run(self, prompts: Iterator[PromptTurns], commit: Commit) -> None:
        done: asyncio.Queue[Outcome | BaseException | None] = asyncio.Queue()
        async with Line(self._endpoint) as line:
            workers = [asyncio.create_task(self._work(line, prompts, done)) for _ in range(self._endpoint.in_flight)]
            try:
                await self._collect(done, len(workers), commit)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
                commit(self._settled(_drained(done)))
        if self._lost and not self._ever_alive:
            raise self._silent()
        commit(self._lost)

    async def _collect(self, done: asyncio.Queue[Any], workers: int, commit: Commit) -> None:
        """Hand over what is done until all workers have ended; the first one that failed ends it all."""
        while workers:
            entries = [await done.get(), *_drained(done)]
            commit(self._settled(entries))
            workers -= sum(entry is None for entry in entries)
            for entry in entries:
                if isinstance(entry, BaseException):
                    raise entry
            if len(self._lost) >= max(8, self._endpoint.in_flight):
                raise self._silent()

    def _settled(self, entries: Sequence[Any]) -> list[Outcome]:
        """Outcomes that can be recorded.

        Lost requests wait for one that gets through: if none does, it is the endpoint that failed, not the prompts.
        """
        settled: list[Outcome] = []
        for outcome in (entry for entry in entries if isinstance(entry, Outcome)):
            (self._lost if outcome.lost else settled).append(outcome)
        if self._alive:
            settled += self._lost
            self._lost = []
        return settled

    def _silent(self) -> InputError:
        last = self._lost[-1].reason
        return InputError(f"{self._endpoint.base_url} does not answer: {last}; the same command goes on from here")

    async def _work(self, line: Line, prompts: Iterator[PromptTurns], done: asyncio.Queue[Any]) -> None:
        """Answer one prompt after the other; ends with None, or with what went wrong."""
        try:
            for turns in prompts:
                done.put_nowait(await self._answer(line, turns))
            done.put_nowait(None)
        except Exception as error:
            done.put_nowait(error)

    async def _answer(self, line: Line, turns: PromptTurns) -> Outcome:
        dialogue = self._plan.dialogue(turns, self.template)
        attempts = 0
        try:
            while (prompt := dialogue.ask()) is not None:
                choice, usage, attempts = await line.ask(self._request(dialogue))
                self._alive = self._ever_alive = True
                self._compare(usage, len(prompt))
                self._take(dialogue, choice)
        except BadPromptError as bad:
            return Outcome(line=turns.line, reason=str(bad), attempts=attempts)
        except UnreachableError as lost:
            self._alive = False
            return Outcome(line=turns.line, reason=str(lost), attempts=self._endpoint.attempts, lost=True)
        return Outcome(line=turns.line, conversations=tuple(dialogue.conversations()), attempts=attempts)

    def _request(self, dialogue: Dialogue) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self._plan.top_k:
            extra["top_k"] = self._plan.top_k
        if self.template.switches:
            extra["chat_template_kwargs"] = {"enable_thinking": self._plan.thinking}
        return {
            "model": self._endpoint.model,
            "messages": list(dialogue.messages),
            "temperature": dialogue.temperature,
            "top_p": self._plan.top_p,
            "max_tokens": min(self._plan.answer_tokens, dialogue.room()),
            "seed": self._plan.seed_of(dialogue),
            "extra_body": extra,
        }

    def _compare(self, usage: Any, ours: int) -> None:
        theirs = getattr(usage, "prompt_tokens", None)
        if theirs:
            self.counted += 1
            self.differing += theirs != ours

    def _take(self, dialogue: Dialogue, choice: Any) -> None:
        reason, message = choice.finish_reason, choice.message
        if reason not in _COMPLETE:
            raise BadPromptError(
                f"the answer to turn {dialogue.asked} ended by {reason!r}, expected 'stop' or 'length'"
            )
        content = message.content or ""
        thoughts = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        if not _COMPLETE[reason]:
            content = content.rstrip("\ufffd")  # half a character at the cut
        try:
            ids = self.template.answer(content, thoughts, complete=_COMPLETE[reason])
        except InputError as wrong:
            raise BadPromptError(str(wrong)) from None
        dialogue.answer(ids, content or ("" if _COMPLETE[reason] else thoughts or ""), complete=_COMPLETE[reason])


def _drained(queue: asyncio.Queue[Any]) -> list[Any]:
    """Everything that is in a queue."""
    found = []
    with suppress(asyncio.QueueEmpty):
        while True:
            found.append(queue.get_nowait())
    return found
