"""Who gets how many rows of the step: decoding first, prompts fill the rest."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
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
        filling: all prefilling sequences, in order of arrival.
        room: rows for drafts and chunks together.
    """

    ready: tuple[Sequence, ...]
    limits: tuple[int, ...]
    chunks: tuple[tuple[Sequence, int], ...]
    num_finishing: int
    filling: tuple[Sequence, ...]
    room: int

    @classmethod
    def of(cls, ready: Seq[Sequence], limits: Seq[int], filling: Seq[Sequence], room: int) -> Allotment:
        """Put those that draft first, and give prompts the rows that drafts leave."""
        order = sorted(range(len(ready)), key=lambda place: limits[place] == 0)
        rows = prefill_chunks([sequence.num_to_prefill for sequence in filling], room - sum(limits))
        chunks = [(sequence, chunk) for sequence, chunk in zip(filling, rows, strict=True) if chunk]
        chunks.sort(key=lambda chunk: not _finishes(*chunk))
        return cls(
            ready=tuple([ready[place] for place in order]),
            limits=tuple([limits[place] for place in order]),
            chunks=tuple(chunks),
            num_finishing=sum(_finishes(*chunk) for chunk in chunks),
            filling=tuple(filling),
            room=room,
        )

    def cut(self, limits: Seq[int]) -> Allotment:
        """The same step with fewer drafts, in the order of ``ready``; prompts get what becomes free."""
        if tuple(limits) == self.limits:
            return self
        return Allotment.of(self.ready, limits, self.filling, self.room)

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
    room = max_rows - len(ready)
    wanted = [min(block_size, sequence.max_draft) for sequence in ready]
    to_prefill = sum(sequence.num_to_prefill for sequence in filling)
    return Allotment.of(ready, drafts_within(wanted, block_size, room, to_prefill), filling, room)


def _finishes(sequence: Sequence, rows: int) -> bool:
    """Whether a chunk ends a fresh prompt; a resumed text ends with an anchor whose token is known already."""
    return rows == sequence.num_to_prefill and sequence.num_output == 0
