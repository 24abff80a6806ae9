"""Token ids to text one token at a time, safe for characters that span tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Decode = Callable[[list[int]], str]
"""Text of token ids, special tokens dropped or kept as the request wants."""

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
_PATIENCE = 12
"""Tokens after which text that still ends in a replacement character is taken as it is; a character has four bytes."""


@dataclass(frozen=True, slots=True)
class Window:
    """The last tokens of an answer: what decides how the next one reads.

    Decoding a token alone can differ from decoding it after its neighbours (leading spaces, byte pieces), so a few
    tokens whose text is known are kept in front. A window is a value: a step that fails leaves the old one in force.

    Attributes:
        ids: tokens of the window.
        known: the text of this many first ones has been read.
    """

    ids: tuple[int, ...] = ()
    known: int = 0

    def read(self, token: int, decode: Decode) -> tuple[Window, str]:
        """Add a token; return the window after it and the new text (empty while a character is unfinished)."""
        ids = (*self.ids, token)
        text = self._text_of(ids, decode)
        unclear = not text or text.endswith(_UNFINISHED)
        if unclear and len(ids) - self.known < _PATIENCE:
            return Window(ids, self.known), ""
        return Window(ids[self.known :], len(ids) - self.known), text

    def rest(self, decode: Decode) -> str:
        """Text of the tokens that wait for their character to be finished."""
        return self._text_of(self.ids, decode) if self.known < len(self.ids) else ""

    def _text_of(self, ids: tuple[int, ...], decode: Decode) -> str:
        """Text of ``ids`` past that of the known ones."""
        return decode(list(ids))[len(decode(list(ids[: self.known]))) :]
