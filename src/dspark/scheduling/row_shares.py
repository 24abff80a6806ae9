"""Who gets how many rows of a step, in numbers: decoding first, prompts fill the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_PREFILL_SHARE = 8
"""Drafts leave at least a share of 1 / 8 of all rows to prompts that wait for their prefill."""


@dataclass(frozen=True, kw_only=True)
class RowShares:
    """Rows of one step, before anything is drafted.

    Attributes:
        limits: most drafts of each request that decodes.
        chunks: prefill rows of each request that does not decode yet; 0 where nothing is left for it.
    """

    limits: tuple[int, ...]
    chunks: tuple[int, ...]


def share_rows(wanted: Sequence[int], to_prefill: Sequence[int], max_rows: int) -> RowShares:
    """Share out the rows of a step.

    Every request that decodes gets its anchor row; drafts get what they can use, cut evenly if rows are short; prompts
    get the rest in order of arrival.

    Args:
        wanted: drafts that each decoding request can use.
        to_prefill: rows that each other request has yet to compute, in order of arrival.
        max_rows: the row budget, at least the number of decoding requests.
    """
    left = max_rows - len(wanted)
    promised = min(sum(to_prefill), max_rows // _PREFILL_SHARE)
    level = _level(wanted, left - promised)
    limits = tuple([min(want, level) for want in wanted])
    return RowShares(limits=limits, chunks=_chunks(to_prefill, left - sum(limits)))


def _level(wanted: Sequence[int], rows: int) -> int:
    """The largest common bound under which all wishes together need at most ``rows`` rows."""
    level = max(wanted, default=0)
    while level > 0 and sum([min(want, level) for want in wanted]) > rows:
        level -= 1
    return level


def _chunks(to_prefill: Sequence[int], rows: int) -> tuple[int, ...]:
    """Prefill rows in order of arrival; each takes what the later ones do not need, and at least half of the rest.

    So a long prompt never keeps short ones behind it from starting, and the oldest always moves on.
    """
    chunks = []
    later = sum(to_prefill)
    for wish in to_prefill:
        later -= wish
        chunks.append(max(min(wish, max(-(-rows // 2), rows - later)), 0))
        rows -= chunks[-1]
    return tuple(chunks)
