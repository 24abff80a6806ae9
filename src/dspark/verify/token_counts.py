"""Which tokens a request has seen, kept up to date in constant time per committed token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class TokenCounts:
    """Distinct tokens of prompt and output, with how often each occurs in the output.

    Only committed tokens enter; drafts that were rejected never do. Iterating rows of a block goes through
    :meth:`along`, which adds the drafts in front of each row without touching the state.

    Args:
        prompt: token ids of the prompt; they count as seen, zero times in the output.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._ids = np.unique(np.asarray(prompt, np.int64))
        self._counts = np.zeros(len(self._ids), np.int64)
        self._place = {token: place for place, token in enumerate(self._ids.tolist())}

    def commit(self, tokens: Sequence[int]) -> None:
        """Append output tokens."""
        for token in tokens:
            place = self._place_of(token)
            self._counts[place] += 1

    def _place_of(self, token: int) -> int:
        place = self._place.setdefault(token, len(self._place))
        if place == len(self._ids):
            spare = max(16, place)
            self._ids = np.concatenate([self._ids, np.zeros(spare, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(spare, np.int64)])
        self._ids[place] = token
        return place

    def along(self, drafts: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """History in front of each row of a block: row j has seen the committed tokens and ``drafts[:j]``.

        Returns:
            ids [K] distinct tokens; seen [l + 1, K] bool; counts [l + 1, K] occurrences in the output.
        """
        size = len(self._place)
        new = [token for token in dict.fromkeys(drafts) if token not in self._place]
        place = {token: size + i for i, token in enumerate(new)}
        ids = np.concatenate([self._ids[:size], np.array(new, np.int64)])
        base = np.concatenate([self._counts[:size], np.zeros(len(new), np.int64)])
        counts = np.repeat(base[None], len(drafts) + 1, 0)
        for j, token in enumerate(drafts, start=1):
            counts[j:, place[token] if token in place else self._place[token]] += 1
        seen = counts > 0
        seen[:, :size] = True
        return ids, seen, counts
