"""Telling thoughts, content and tool calls apart while an answer arrives."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from dspark.serving.tools import Call, ToolSyntax

_OPEN, _CLOSE = "<think>", "</think>"

Part = tuple[str, str] | Call
"""``("thought", text)``, ``("content", text)``, or a call."""


class _At(Enum):
    START = auto()
    BEFORE_THOUGHT = auto()
    THOUGHT = auto()
    AFTER_THOUGHT = auto()
    CONTENT = auto()
    CALL = auto()


class AnswerReader:
    """Reads one answer piece by piece; nothing is handed out that a later piece could make part of a tag.

    Args:
        thinks: whether the answer may begin with thoughts between tags.
        inside: whether the prompt opened a thought already.
        tools: how calls are written; None if there are no tools.
    """

    def __init__(self, *, thinks: bool, inside: bool, tools: ToolSyntax | None) -> None:
        self._tools = tools
        self._at = _At.THOUGHT if inside else _At.START if thinks else _At.CONTENT
        self._held = ""
        self.num_calls = 0

    @property
    def _bare(self) -> bool:
        """Whether the whole answer may still turn out to be a call without tags."""
        return self._tools is not None and not self._tools.opening

    def feed(self, text: str) -> list[Part]:
        """What the next piece of text brings."""
        self._held += text
        return list(self._read())

    def end(self) -> list[Part]:
        """What was held back, now that nothing more comes."""
        parts = list(self._read())
        held, self._held = self._held, ""
        if self._at is _At.CALL or (self._bare and self._at is _At.CONTENT):
            return [*parts, *self._calls(held, closed=False)]
        if held:
            parts.append(("thought" if self._at is _At.THOUGHT else "content", held))
        return parts

    def _read(self) -> Iterator[Part]:
        while self._held:
            before = (self._at, len(self._held))
            yield from self._step()
            if (self._at, len(self._held)) == before:
                return

    def _step(self) -> Iterator[Part]:
        if self._at is _At.START:
            self._start()
        elif self._at is _At.THOUGHT:
            yield from self._until(_CLOSE, "thought", _At.AFTER_THOUGHT)
        elif self._at in (_At.BEFORE_THOUGHT, _At.AFTER_THOUGHT):
            self._held = self._held.lstrip("\n")
            if self._held:
                self._at = _At.THOUGHT if self._at is _At.BEFORE_THOUGHT else _At.CONTENT
        elif self._at is _At.CALL:
            yield from self._call()
        elif self._bare and self._held.lstrip()[:1] in ("", "{", "["):
            return
        elif self._tools is None or self._bare:
            self._tools = None
            yield ("content", self._held)
            self._held = ""
        else:
            yield from self._until(self._tools.opening, "content", _At.CALL)

    def _start(self) -> None:
        text = self._held.lstrip()
        if text.startswith(_OPEN):
            self._held, self._at = text[len(_OPEN) :], _At.BEFORE_THOUGHT
        elif not _OPEN.startswith(text):
            self._at = _At.CONTENT

    def _until(self, tag: str, kind: str, then: _At) -> Iterator[Part]:
        """Hand out text before a tag, and go on behind it."""
        text, found, rest = self._held.partition(tag)
        if found:
            self._held, self._at = rest, then
        else:
            keep = _overlap(text, tag)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        if kind == "content" and self.num_calls and not text.strip():
            return  # line breaks between calls
        if text:
            yield (kind, text)

    def _call(self) -> Iterator[Part]:
        assert self._tools is not None
        text, found, rest = self._held.partition(self._tools.closing)
        if found:
            self._held, self._at = rest, _At.CONTENT
            yield from self._calls(text, closed=True)

    def _calls(self, text: str, *, closed: bool) -> Iterator[Part]:
        """The calls in a text, or the text itself, tags included, if it holds something else."""
        assert self._tools is not None
        calls = self._tools.read(text) if text.strip() else []
        if calls is None:
            yield ("content", self._tools.opening + text + (self._tools.closing if closed else ""))
            return
        self.num_calls += len(calls)
        yield from calls


def _overlap(text: str, tag: str) -> int:
    """Length of the longest proper beginning of ``tag`` that ends ``text``."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
