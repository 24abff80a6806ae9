"""Log probabilities in OpenAI's two shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dspark.core import TokenLogprobs

_LEAST = -9999.0
"""Stands for minus infinity, which JSON does not have."""

Piece = Callable[[int], str]
"""Text of a token."""


def chat_logprobs(entries: Iterable[TokenLogprobs], piece: Piece) -> dict[str, Any]:
    """The ``logprobs`` of a chat choice."""
    content = []
    for entry in entries:
        top = [_entry(token, value, piece) for token, value in entry.top]
        content.append(_entry(entry.token, entry.logprob, piece) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def completion_logprobs(entries: Iterable[TokenLogprobs], piece: Piece, offset: int) -> dict[str, Any]:
    """The ``logprobs`` of a plain completion; ``offset`` is that of the first token in the text."""
    tokens, values, top, offsets = [], [], [], []
    for entry in entries:
        text = piece(entry.token)
        tokens.append(text)
        values.append(max(entry.logprob, _LEAST))
        top.append({piece(token): max(value, _LEAST) for token, value in entry.top})
        offsets.append(offset)
        offset += len(text)
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets}


def _entry(token: int, value: float, piece: Piece) -> dict[str, Any]:
    text = piece(token)
    return {"token": text, "logprob": max(value, _LEAST), "bytes": list(text.encode())}
