"""Sequences that nobody asked for, as deep in their texts as is wanted, to see what steps cost."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import pairwise

import numpy as np

from dspark.core import SamplingParams
from dspark.engine.ending import Ending
from dspark.engine.sequence import Request, Sequence
from dspark.kvcache import PageTable, pages_for

_ENDLESS = 1 << 30


class MadeUpTexts:
    """Hands out sequences with random texts whose contexts hold whatever is in memory; neither changes what steps cost.

    The full pages of contexts lie in a region that sequences share where it is too small for all of them; what follows
    is each one's own.

    Args:
        vocab_size: V.
        page_size: tokens per page.
        shared: pages of the region.
        own: most rows of a step that each of several sequences can have; one entry per sequence.
    """

    def __init__(self, vocab_size: int, page_size: int, shared: int, own: Seq[int]) -> None:
        self._page, self._shared = page_size, shared
        counts = [pages_for(page_size + rows, page_size) for rows in own]
        ends = np.cumsum([shared, *counts]).tolist()
        self._own = [list(range(start, end)) for start, end in pairwise(ends)]
        self.num_pages = int(ends[-1])
        self._numbers, self._vocab_size = np.random.default_rng(0), vocab_size
        params = SamplingParams(temperature=0.0)
        self._request = Request(
            request_id="",
            prompt=None,
            prompt_token_ids=(0,),
            params=params,
            ending=Ending(max_tokens=_ENDLESS),
            decode=None,
        )

    def tokens(self, count: int) -> list[int]:
        """Random ids."""
        return self._numbers.integers(self._vocab_size, size=count).tolist()

    def decoding(self, place: int, context: int) -> Sequence:
        """A sequence whose anchor follows ``context`` tokens."""
        return self._make(place, context, context + 1, context)

    def filling(self, place: int, context: int, rows: int) -> Sequence:
        """A sequence that has more than ``rows`` rows of its prompt to compute after ``context`` tokens."""
        return self._make(place, context, context + rows + 1, context + rows + 1)

    def _make(self, place: int, context: int, length: int, num_prompt: int) -> Sequence:
        full = context // self._page
        first = place * full
        shared = [(first + page) % self._shared for page in range(full)] if full else []
        return Sequence(
            request=self._request,
            index=0,
            seed=0,
            arrival=place,
            num_prompt=num_prompt,
            token_ids=self.tokens(length),
            table=PageTable(pages=[*shared, *self._own[place]]),
            num_computed=context,
        )
