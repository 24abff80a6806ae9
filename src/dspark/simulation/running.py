"""The requests in progress of one replica, as one table in order of arrival."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspark.scheduling.step_view import Ints
from dspark.simulation.texts import Lengths

_ROW = np.dtype(
    [
        (name, np.int64)
        for name in (
            "text",
            "slot",
            "generation",
            "prompt",  # tokens of the prompt
            "to_prefill",  # rows of it yet to compute
            "outputs",  # tokens of the answer so far
            "rounds",
            "answer",  # tokens of the whole answer
            "max_tokens",
        )
    ]
)


class Running:
    """A table of R requests, one array [R] a column.

    Args:
        lengths: of all texts.
    """

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self._table: NDArray[np.void] = np.zeros(0, _ROW)

    def __len__(self) -> int:
        return len(self._table)

    def column(self, name: str) -> Ints:
        """A column; writing to it changes the table."""
        return self._table[name]

    def add(self, texts: Ints, slots: Ints, generations: Ints) -> None:
        """Let requests in, behind those that are there."""
        news = np.zeros(len(texts), _ROW)
        sizes = self._lengths.take(texts)
        news["text"], news["slot"], news["generation"] = texts, slots, generations
        news["prompt"] = news["to_prefill"] = sizes.prompt
        news["answer"], news["max_tokens"] = sizes.answer, sizes.max_tokens
        self._table = np.concatenate((self._table, news))

    def drop_ended(self) -> Ints:
        """Take out the requests whose answers are whole; returns their texts."""
        ended = self._table["outputs"] == self._table["answer"]
        if not ended.any():
            return _NOBODY
        gone: Ints = self._table["text"][ended]
        self._table = self._table[~ended]
        return gone


_NOBODY = np.zeros(0, np.int64)
