"""What ends an answer: tokens, strings, length."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.core import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The rules of one request.

    Attributes:
        eos_ids: the model's own end-of-text ids (empty if they are to be ignored).
        stop_ids: further ids.
        stop: strings.
        keep_stop: whether the stop string or stop token stays in the text.
        min_tokens: no string ends the answer before this many tokens (ids are masked in the logits until then).
        max_tokens: length limit: what the request asks for and the context has room for.
    """

    eos_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    keep_stop: bool = False
    min_tokens: int = 0
    max_tokens: int

    def by_token(self, token: int) -> bool:
        """Whether this token ends the answer."""
        return token in self.eos_ids or token in self.stop_ids

    def by_length(self, count: int) -> FinishReason | None:
        """LENGTH if an answer of ``count`` tokens is full."""
        return FinishReason.LENGTH if count >= self.max_tokens else None

    def stop_reason(self, token: int) -> int | None:
        """The id the user named; None for end of text."""
        return token if token in self.stop_ids else None

    def find_string(self, text: str, fresh: int) -> tuple[int, str] | None:
        """The stop string that ends first in ``text``, among those that end after its first ``fresh`` characters.

        Returns:
            Where it starts, and the string; None if there is none.
        """
        found: list[tuple[int, int, str]] = []
        for stop in self.stop:
            place = text.find(stop, max(0, fresh - len(stop) + 1))
            if place >= 0:
                found.append((place + len(stop), place, stop))
        return min(found)[1:] if found else None

    def held_back(self, text: str) -> int:
        """How many last characters of ``text`` could be the beginning of a stop string."""
        return max((_overlap(text, stop) for stop in self.stop), default=0)


def _overlap(text: str, stop: str) -> int:
    """Longest proper prefix of ``stop`` that ends ``text``."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
