"""Who gets how many rows of a step, in numbers: decoding first, prompts fill the rest."""

from __future__ import annotations

from collections.abc import Sequence

_PREFILL_SHARE = 8
"""Drafts leave at least a share of 1 / 8 of all rows to prompts that wait for their prefill."""


def drafts_within(wanted: Sequence[int], block_size: int, room: int, to_prefill: int) -> list[int]:
    """Cut wishes for drafts to the largest common bound under which they leave prompts their share.

    Args:
        wanted: drafts that each request can use.
        block_size: the largest bound.
        room: rows of the step besides the anchors.
        to_prefill: prompt rows that wait.
    """
    rows, level = room - min(to_prefill, (room + len(wanted)) // _PREFILL_SHARE), block_size
    while level > 0 and sum([min(want, level) for want in wanted]) > rows:
        level -= 1
    return [min(want, level) for want in wanted]


def prefill_chunks(to_prefill: Sequence[int], rows: int) -> list[int]:
    """Rows for prompts in order of arrival; each takes what later ones do not need, and at least half of the rest.

    So a long prompt never keeps short ones behind it from starting, and the oldest always moves on.

    Args:
        to_prefill: prompt rows that each request has yet to compute.
        rows: how many there are for all of them.
    """
    chunks = []
    later = sum(to_prefill)
    for wish in to_prefill:
        later -= wish
        chunks.append(max(min(wish, max(-(-rows // 2), rows - later)), 0))
        rows -= chunks[-1]
    return chunks
