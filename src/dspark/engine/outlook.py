"""What a step is going to be, for a policy that plans it: as it is, or as it can be foreseen one step ahead."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from dspark.engine.allotment import Allotment
from dspark.engine.sequence import Sequence
from dspark.scheduling import drafts_within


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A step before anything is drafted.

    Attributes:
        sequences: those that decode in it.
        limits: most drafts of each.
        prefill_rows: target rows of prompts.
        context: mean number of keys that a row sees.
    """

    sequences: tuple[Sequence, ...]
    limits: tuple[int, ...]
    prefill_rows: int
    context: float

    @classmethod
    def of(cls, allotment: Allotment) -> Outlook:
        """A step whose rows are shared out."""
        spans = [(s.num_computed, 1) for s in allotment.ready] + [(s.num_computed, n) for s, n in allotment.chunks]
        return cls(
            sequences=allotment.ready,
            limits=allotment.limits,
            prefill_rows=allotment.num_prefill_rows,
            context=mean_keys(spans),
        )

    @classmethod
    def after(cls, allotment: Allotment, block_size: int) -> Outlook:
        """The step after one that is still running: what it will be if no text ends early and nobody arrives.

        Those that really decode in it are among those foreseen, but for a preempted text whose pages are all found
        again. Their limits may be other ones where rows are short: smaller when prompts arrive, larger when texts end.
        """
        finishing = [s for s, _ in allotment.chunks[: allotment.num_finishing]]
        going_on = [s for s in (*allotment.ready, *finishing) if not s.surely_ends]
        resumed = [s for s, rows in allotment.chunks if rows == s.num_to_prefill and s.num_output]
        ready = [*going_on, *resumed]
        wanted = [min(block_size, s.max_draft_after(1)) for s in going_on]
        wanted += [min(block_size, s.max_draft) for s in resumed]
        room = allotment.room + len(allotment.ready) - len(ready)
        left = sum(s.num_to_prefill for s in allotment.filling) - allotment.num_prefill_rows
        limits = drafts_within(wanted, block_size, room, left)
        spans = [(len(s.token_ids), 1) for s in ready]
        return cls(
            sequences=tuple(ready),
            limits=tuple(limits),
            prefill_rows=max(min(left, room - sum(limits)), 0),
            context=mean_keys(spans),
        )


def mean_keys(spans: Iterable[tuple[int, int]]) -> float:
    """Mean number of keys that a row sees, for runs of rows: keys before the first one, and how many they are."""
    pairs: Seq[tuple[int, int]] = list(spans)
    rows = sum(count for _, count in pairs)
    keys = sum(count * (before + (count + 1) / 2) for before, count in pairs)
    return keys / rows if rows else 0.0
