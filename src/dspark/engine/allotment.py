"""Who gets how many rows of the step: decoding first, prompts fill the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dspark.engine.sequence import Sequence

_PREFILL_SHARE = 8
"""Drafts leave at least a share of 1 / 8 of all rows to prompts that wait for their prefill."""


@dataclass(frozen=True, kw_only=True)
class Allotment:
    """Rows of one step, before anything is drafted.

    Attributes:
        ready: sequences that decode, those with a draft limit above 0 first.
        limits: most drafts of each of them.
        chunks: prefilling sequences and the rows each gets, >= 1; those whose prompt is finished by it come first.
        num_finishing: how many of ``chunks`` finish a prompt and get their first token.
    """

    ready: tuple[Sequence, ...]
    limits: tuple[int, ...]
    chunks: tuple[tuple[Sequence, int], ...]
    num_finishing: int

    @property
    def num_drafting(self) -> int:
        """How many of ``ready`` want a block."""
        return sum(limit > 0 for limit in self.limits)

    @property
    def num_prefill_rows(self) -> int:
        """Rows of all chunks."""
        return sum(rows for _, rows in self.chunks)

    @property
    def judged(self) -> tuple[Sequence, ...]:
        """Sequences that get a token this step: all that decode, and finished prompts."""
        return (*self.ready, *(sequence for sequence, _ in self.chunks[: self.num_finishing]))


def allot(running: Iterable[Sequence], block_size: int, max_rows: int) -> Allotment:
    """Share out the rows of a step.

    Every decoding sequence gets its anchor row; drafts get what they can use, cut evenly if rows are short; prompts
    get the rest in order of arrival.

    Args:
        running: sequences that hold pages, in order of arrival.
        block_size: most drafts of a sequence.
        max_rows: the row budget, at least the number of sequences.
    """
    running = tuple(running)
    ready = [sequence for sequence in running if sequence.ready]
    filling = [sequence for sequence in running if not sequence.ready]
    promised = min(sum(sequence.num_to_prefill for sequence in filling), max_rows // _PREFILL_SHARE)
    left = max_rows - len(ready)
    wanted = [min(block_size, sequence.max_draft) for sequence in ready]
    level = _level(wanted, block_size, left - promised)
    limit_of = {id(s): min(want, level) for s, want in zip(ready, wanted, strict=True)}
    ready.sort(key=lambda sequence: limit_of[id(sequence)] == 0)
    limits = tuple([limit_of[id(sequence)] for sequence in ready])
    chunks = _chunks(filling, left - sum(limits))
    chunks.sort(key=lambda chunk: not _finishes(*chunk))
    return Allotment(
        ready=tuple(ready), limits=limits, chunks=tuple(chunks), num_finishing=sum(_finishes(*c) for c in chunks)
    )


def _level(wanted: list[int], block_size: int, rows: int) -> int:
    """The largest common bound under which all wishes together need at most ``rows`` rows."""
    level = block_size
    while level > 0 and sum(min(want, level) for want in wanted) > rows:
        level -= 1
    return level


def _chunks(filling: list[Sequence], rows: int) -> list[tuple[Sequence, int]]:
    """Prefill rows in order of arrival; each takes what the later ones do not need, and at least half of the rest.

    So a long prompt never keeps short ones behind it from starting, and the oldest always moves on.
    """
    chunks = []
    later = sum(sequence.num_to_prefill for sequence in filling)
    for sequence in filling:
        later -= sequence.num_to_prefill
        chunk = min(sequence.num_to_prefill, max(-(-rows // 2), rows - later))
        if chunk > 0:
            chunks.append((sequence, chunk))
            rows -= chunk
    return chunks


def _finishes(sequence: Sequence, rows: int) -> bool:
    """Whether a chunk ends a fresh prompt; a resumed text ends with an anchor whose token is known already."""
    return rows == sequence.num_to_prefill and sequence.num_output == 0
