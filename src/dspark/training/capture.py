"""Running the target over whole sequences and keeping what a drafter learns from.

Legend: T tokens of the sequences of one forward, m tapped layers, D hidden size of the target.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dspark.core import InputError, PackedBatch
from dspark.data.corpus import Corpus
from dspark.target import PackedTarget, TargetFacts

_HEAD_ROWS = 128
"""Rows whose logits over the full vocabulary exist at a time."""


class Capture:
    """A target set up for training: taps, and pages for the keys and values of one forward.

    It takes the target over when it runs, if an engine or another capture has used it in between.
    """

    def __init__(self, target: PackedTarget, tap_layers: Sequence[int]) -> None:
        """Nothing runs yet.

        Raises:
            InputError: taps that the target does not have.
        """
        self.target, self.tap_layers = target, tuple(tap_layers)
        target.set_taps(self.tap_layers)
        self._pages, self._claim = 0, -1

    @torch.no_grad()
    def run(self, texts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """One forward over whole sequences of token ids, each >= 1 token, packed one after the other.

        Returns:
            features [T, m * D] and last hidden states [T, D] after the final norm, in the target's type.
        """
        lengths = [len(text) for text in texts]
        pages = [-(-length // self.target.page_size) for length in lengths]
        self._take_over(sum(pages))
        batch = _prefill(np.concatenate(texts), lengths, pages, self.target.page_size, self.target.device)
        output = self.target.forward(batch, want_hidden=True)
        assert output.features is not None
        assert output.last_hidden is not None
        return output.features, output.last_hidden

    @torch.no_grad()
    def log_denominators(self, hidden: Tensor) -> Tensor:
        """Log of the softmax denominator over the full vocabulary for rows [U, D] of any type -> [U] float32."""
        blocks = hidden.to(self.target.dtype).split(_HEAD_ROWS)
        return torch.cat([torch.logsumexp(self.target.lm_head(block).float(), dim=-1) for block in blocks])

    def _take_over(self, pages: int) -> None:
        """Make sure that taps and pages are ours, and enough."""
        target = self.target
        if target.tap_layers != self.tap_layers:
            target.set_taps(self.tap_layers)
        if pages > self._pages or target.allocations != self._claim:
            self._pages = max(pages, self._pages)
            target.allocate(self._pages)
            self._claim = target.allocations


def check_corpus(corpus: Corpus, facts: TargetFacts) -> None:
    """See that a target can run every sequence.

    Raises:
        InputError: names the first one that it cannot.
    """
    largest = np.maximum.reduceat(corpus.ids, corpus.offsets[:-1]) if corpus.sequences else corpus.ids
    bad = np.flatnonzero((largest >= facts.vocab_size) | (corpus.lengths > facts.max_positions))
    if len(bad):
        first = int(bad[0])
        raise InputError(
            f"conversation {first + 1} has {corpus.lengths[first]} tokens with ids up to {largest[first]}, but the "
            f"target takes {facts.max_positions} tokens with ids below {facts.vocab_size}; was it written by another "
            "target?"
        )


def _prefill(
    ids: np.ndarray, lengths: list[int], pages: list[int], page_size: int, device: torch.device
) -> PackedBatch:
    """One batch that prefills whole sequences, each on pages of its own; no logits."""
    table = torch.zeros(len(lengths), max(pages), dtype=torch.int64)
    slots, first = [], 0
    for row, (length, count) in enumerate(zip(lengths, pages, strict=True)):
        table[row, :count] = torch.arange(first, first + count)
        slots.append(torch.arange(first * page_size, first * page_size + length))
        first += count
    return PackedBatch(
        input_ids=torch.from_numpy(ids.astype(np.int64)).to(device),
        positions=torch.cat([torch.arange(length) for length in lengths]).to(device),
        kv_slots=torch.cat(slots).to(device),
        page_table=table.to(device),
        q_lens=tuple(lengths),
        kv_lens=tuple(lengths),
        logit_rows=torch.zeros(0, dtype=torch.int64, device=device),
        page_size=page_size,
    )
