"""Who gets how many rows of the step: decoding first, prompts fill the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dspark.engine.sequence import Sequence
from dspark.scheduling import drafts_within, prefill_chunks


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
    to_prefill, room = [sequence.num_to_prefill for sequence in filling], max_rows - len(ready)
    wanted = [min(block_size, sequence.max_draft) for sequence in ready]
    given = drafts_within(wanted, block_size, room, sum(to_prefill))
    limit_of = {id(s): limit for s, limit in zip(ready, given, strict=True)}
    ready.sort(key=lambda sequence: limit_of[id(sequence)] == 0)
    rows = prefill_chunks(to_prefill, room - sum(given))
    chunks = [(sequence, chunk) for sequence, chunk in zip(filling, rows, strict=True) if chunk]
    chunks.sort(key=lambda chunk: not _finishes(*chunk))
    return Allotment(
        ready=tuple(ready),
        limits=tuple([limit_of[id(sequence)] for sequence in ready]),
        chunks=tuple(chunks),
        num_finishing=sum(_finishes(*chunk) for chunk in chunks),
    )


def _finishes(sequence: Sequence, rows: int) -> bool:
    """Whether a chunk ends a fresh prompt; a resumed text ends with an anchor whose token is known already."""
    return rows == sequence.num_to_prefill and sequence.num_output == 0
