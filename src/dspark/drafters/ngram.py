"""Prompt lookup: the text so far is the drafter (Saxena 2023; also "n-gram speculation" in vLLM and transformers)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dspark.core import CommittedRows, DraftBatch, InputError, Proposal


class NgramDrafter:
    """Finds the latest earlier place where the text's last tokens stood, and proposes what followed them there.

    The longest match up to ``max_ngram`` tokens wins, among equally long ones the most recent. Proposals are
    deterministic, so their draft distribution is one-hot (``Proposal.probs`` is None).

    Args:
        max_ngram: longest suffix looked up.
        min_ngram: a match shorter than this proposes nothing.
        block_size: most tokens per proposal.

    Raises:
        InputError: not 1 <= min_ngram <= max_ngram, or block_size < 1.
    """

    name = "ngram"
    tap_layers: tuple[int, ...] = ()
    has_confidence = False

    def __init__(self, max_ngram: int = 4, min_ngram: int = 2, block_size: int = 7) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise InputError(f"n-gram drafter: need 1 <= min_ngram <= max_ngram, got {min_ngram} and {max_ngram}")
        if block_size < 1:
            raise InputError(f"n-gram drafter: block_size must be >= 1, got {block_size}")
        self.max_ngram, self.min_ngram, self.block_size = max_ngram, min_ngram, block_size

    def context_bytes_per_page(self, page_size: int) -> int:
        """The histories belong to the engine; nothing is kept here."""
        return 0

    def allocate(self, num_pages: int, page_size: int) -> None:
        """Nothing to allocate."""

    def observe(self, rows: CommittedRows) -> None:
        """Nothing to remember: every proposal reads the history afresh."""

    def propose(self, batch: DraftBatch) -> Proposal:
        """Look up every request's own history."""
        blocks = [
            self.lookup(history, min(limit, self.block_size))
            for history, limit in zip(batch.histories, batch.max_lens, strict=True)
        ]
        tokens = np.zeros((len(blocks), max(map(len, blocks), default=0)), dtype=np.int64)
        for row, block in zip(tokens, blocks, strict=True):
            row[: len(block)] = block
        return Proposal(
            tokens=torch.from_numpy(tokens).to(batch.anchors.device), lengths=tuple(len(block) for block in blocks)
        )

    def lookup(self, history: Sequence[int], limit: int) -> np.ndarray:
        """Return up to ``limit`` tokens expected after ``history`` ([n] int64, possibly empty).

        When the match ends p tokens before the end and p < limit, the text is taken to repeat with period p.
        """
        text = np.asarray(history, dtype=np.int64)
        end = self._latest_match(text)
        if end is None:
            return text[:0]
        return np.resize(text[end:], limit)

    def _latest_match(self, text: np.ndarray) -> int | None:
        """Position after the latest earlier occurrence of the longest matching suffix; None if none is long enough."""
        ends, length = np.flatnonzero(text[:-1] == text[-1:]), 1
        if not ends.size:
            return None
        while length < self.max_ngram:
            longer = ends[ends >= length]
            longer = longer[text[longer - length] == text[-1 - length]]
            if not longer.size:
                break
            ends, length = longer, length + 1
        return int(ends[-1]) + 1 if length >= self.min_ngram else None
