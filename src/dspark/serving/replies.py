"""Answers in OpenAI's shapes, whole and in pieces."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from dspark.core import FinishReason
from dspark.serving.logprobs import Piece, chat_logprobs, completion_logprobs
from dspark.serving.reading import AnswerReader, Part
from dspark.serving.ticket import Delta
from dspark.serving.tools import Call, ToolSyntax

_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORT: "stop"}


class Reply(ABC):
    """How the answers of one HTTP request are written.

    Args:
        piece: text of a token.
        logprobs: whether log probabilities were asked for.
        token_ids: whether token ids were asked for.
        origins: whether it was asked who wrote what.
    """

    kind: ClassVar[str]
    chunk_kind: ClassVar[str]
    prefix: ClassVar[str]

    def __init__(self, *, piece: Piece, logprobs: bool, token_ids: bool, origins: bool) -> None:
        self.piece, self.logprobs = piece, logprobs
        self._token_ids, self._origins = token_ids, origins

    @abstractmethod
    def pieces(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """Choices of the chunks that bring what is new in an answer."""

    @abstractmethod
    def whole(self, delta: Delta) -> dict[str, Any]:
        """The choice of an answer that has ended, everything in one delta."""

    def opening(self) -> Iterable[dict[str, Any]]:
        """Choices of the chunks that come first."""
        return ()

    def extras(self, delta: Delta) -> dict[str, Any]:
        """What clients of this server may ask for beyond OpenAI's fields."""
        found: dict[str, Any] = {}
        if self._token_ids:
            found["token_ids"] = delta.token_ids
        if self._origins:
            found["pieces"] = [[text, origin.value, sure] for text, origin, sure in delta.pieces]
        return found


class CompletionReply(Reply):
    """Plain completions.

    Args:
        echo: texts of the prompts, to be repeated before their answers; empty for none.
        n: answers per prompt.
    """

    kind = chunk_kind = "text_completion"
    prefix = "cmpl"

    def __init__(self, *, echo: tuple[str, ...], n: int, **options: Any) -> None:
        super().__init__(**options)
        self._echo, self._n = echo, n
        self._offsets: dict[int, int] = {}

    def opening(self) -> Iterable[dict[str, Any]]:
        """The prompts, if they are to be repeated."""
        for place, text in enumerate(self._echo):
            for index in range(self._n):
                yield {"index": place * self._n + index, "text": text, "logprobs": None, "finish_reason": None}

    def pieces(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """One chunk."""
        done = delta.completion
        if delta.text or delta.token_ids or done is not None:
            yield self._choice(delta, delta.text)

    def whole(self, delta: Delta) -> dict[str, Any]:
        """The text, after the prompt if that is to be repeated."""
        return self._choice(delta, (self._echo[delta.choice // self._n] if self._echo else "") + delta.text)

    def _choice(self, delta: Delta, text: str) -> dict[str, Any]:
        done = delta.completion
        logprobs = None
        if self.logprobs:
            offset = self._offsets.get(delta.choice, 0)
            logprobs = completion_logprobs(delta.logprobs, self.piece, offset)
            self._offsets[delta.choice] = offset + sum(map(len, logprobs["tokens"]))
        return {
            "index": delta.choice,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": None if done is None else _REASONS[done.finish_reason],
            "stop_reason": None if done is None else done.stop_reason,
            **self.extras(delta),
        }


class ChatReply(Reply):
    """Chat completions.

    Args:
        n: number of answers.
        thinks: whether the model may begin with thoughts.
        inside: whether the prompt opened a thought already.
        tools: how calls are written; None without tools.
    """

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    prefix = "chatcmpl"

    def __init__(self, *, n: int, thinks: bool, inside: bool, tools: ToolSyntax | None, **options: Any) -> None:
        super().__init__(**options)
        self._readers = [AnswerReader(thinks=thinks, inside=inside, tools=tools) for _ in range(n)]

    def opening(self) -> Iterable[dict[str, Any]]:
        """Who speaks."""
        for index in range(len(self._readers)):
            delta = {"role": "assistant", "content": ""}
            yield {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def pieces(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """Chunks for thoughts, content and calls, then one that ends the answer."""
        reader, done = self._readers[delta.choice], delta.completion
        before = reader.num_calls
        parts = reader.feed(delta.text) + (reader.end() if done is not None else [])
        news = _deltas(parts, before)
        logprobs = chat_logprobs(delta.logprobs, self.piece) if self.logprobs and delta.logprobs else None
        extras = self.extras(delta)
        if not news and (logprobs or any(extras.values()) or done is not None):
            news = [{}]
        for place, new in enumerate(news):
            last = place == len(news) - 1
            yield {
                "index": delta.choice,
                "delta": new,
                "logprobs": logprobs if place == 0 else None,
                "finish_reason": self._reason(delta) if last and done is not None else None,
                **(extras if place == 0 else {}),
            }

    def whole(self, delta: Delta) -> dict[str, Any]:
        """The message."""
        reader = self._readers[delta.choice]
        parts = reader.feed(delta.text) + reader.end()
        message: dict[str, Any] = {"role": "assistant", "content": _joined(parts, "content"), "refusal": None}
        if thoughts := _joined(parts, "thought"):
            message["reasoning_content"] = thoughts
        calls = [_call(part) for part in parts if isinstance(part, Call)]
        if calls:
            message |= {"tool_calls": calls, "content": message["content"] or None}
        return {
            "index": delta.choice,
            "message": message,
            "logprobs": chat_logprobs(delta.logprobs, self.piece) if self.logprobs else None,
            "finish_reason": self._reason(delta),
            "stop_reason": delta.completion.stop_reason if delta.completion else None,
            **self.extras(delta),
        }

    def _reason(self, delta: Delta) -> str:
        assert delta.completion is not None
        if self._readers[delta.choice].num_calls and delta.completion.finish_reason is FinishReason.STOP:
            return "tool_calls"
        return _REASONS[delta.completion.finish_reason]


def _joined(parts: Iterable[Part], kind: str) -> str:
    return "".join([part[1] for part in parts if not isinstance(part, Call) and part[0] == kind])


def _call(call: Call) -> dict[str, Any]:
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _deltas(parts: Iterable[Part], first_call: int) -> list[dict[str, Any]]:
    """Parts as the deltas of chunks."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Call):
            found.append({"tool_calls": [{"index": first_call, **_call(part)}]})
            first_call += 1
        else:
            found.append({"reasoning_content" if part[0] == "thought" else "content": part[1]})
    return found
