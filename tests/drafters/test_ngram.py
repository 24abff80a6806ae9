from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dspark.core import DraftBatch, InputError, Proposal
from dspark.drafters import NgramDrafter, NullDrafter

from .standin import RecordingSampler


def batch_of(histories: Sequence[Sequence[int]], max_lens: Sequence[int]) -> DraftBatch:
    return DraftBatch(
        anchors=torch.tensor([history[-1] for history in histories]),
        anchor_positions=tuple(len(history) - 1 for history in histories),
        page_table=torch.zeros(len(histories), 1, dtype=torch.int64),
        page_size=16,
        histories=histories,
        max_lens=tuple(max_lens),
        sampler=RecordingSampler(),
    )


def drafted(proposal: Proposal) -> list[list[int]]:
    return [row[:length].tolist() for row, length in zip(proposal.tokens, proposal.lengths, strict=True)]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([1, 2, 3, 4], [], id="no match"),
        pytest.param([5], [], id="one token"),
        pytest.param([7, 1, 9, 1], [], id="shorter than min_ngram"),
        pytest.param([1, 2, 30, 31, 32, 33, 34, 1, 2], [30, 31, 32, 33], id="match at the very start"),
        pytest.param([1, 2, 30, 31, 32, 33, 1, 2, 40, 41, 42, 43, 1, 2], [40, 41, 42, 43], id="most recent wins"),
        pytest.param([3, 1, 2, 30, 31, 32, 33, 4, 1, 2, 40, 41, 3, 1, 2], [30, 31, 32, 33], id="longest beats recent"),
        pytest.param([9, 1, 2, 5, 1, 2], [5, 1, 2, 5], id="match near the end repeats its period"),
        pytest.param([8, 6, 6, 6], [6, 6, 6, 6], id="match overlaps the suffix"),
        pytest.param([4, 1, 2, 3, 4, 7, 7, 1, 2, 3, 4], [7, 7, 1, 2], id="longer than max_ngram does not matter"),
    ],
)
def test_lookup(history: list[int], expected: list[int]) -> None:
    drafter = NgramDrafter(max_ngram=3, min_ngram=2, block_size=4)
    assert drafted(drafter.propose(batch_of([history], [4]))) == [expected]


@pytest.mark.pitfall(3)
def test_proposals_are_one_hot() -> None:
    proposal = NgramDrafter().propose(batch_of([[1, 2, 3, 1, 2]], [3]))
    assert proposal.lengths == (3,)
    assert proposal.probs is None
    assert proposal.confidence is None


def test_ragged_batch_with_limits() -> None:
    histories = [[1, 2, 3, 4, 1, 2], [1, 2, 3], [5, 6, 7, 8, 9, 5, 6]]
    proposal = NgramDrafter(block_size=3).propose(batch_of(histories, [1, 7, 7]))
    assert drafted(proposal) == [[3], [], [7, 8, 9]]
    assert proposal.tokens.shape == (3, 3)


def test_nothing_found_is_an_empty_block() -> None:
    proposal = NgramDrafter().propose(batch_of([[1, 2, 3], [4]], [7, 7]))
    assert proposal.tokens.shape == (2, 0)
    assert proposal.lengths == (0, 0)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=24), st.integers(1, 6))
def test_lookup_equals_the_plain_definition(history: list[int], limit: int) -> None:
    drafter = NgramDrafter(max_ngram=4, min_ngram=2, block_size=6)
    expected: list[int] = []
    for length in range(min(4, len(history) - 1), 1, -1):
        suffix = history[-length:]
        ends = [e for e in range(length, len(history)) if history[e - length : e] == suffix]
        if ends:
            follow = history[ends[-1] :]
            expected = [follow[i % len(follow)] for i in range(limit)]
            break
    assert drafter.lookup(history, limit).tolist() == expected


def test_history_is_read_not_kept() -> None:
    history = np.array([1, 2, 3, 1, 2])
    drafter = NgramDrafter()
    drafter.lookup(history, 4)[:] = 0
    assert history.tolist() == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("sizes", [(0, 0, 1), (2, 3, 4), (3, 1, 0)])
def test_impossible_sizes_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(InputError):
        NgramDrafter(*sizes)


def test_plain_decoding_proposes_nothing() -> None:
    drafter = NullDrafter()
    proposal = drafter.propose(batch_of([[1], [2, 3]], [7, 7]))
    assert proposal.tokens.shape == (2, 0)
    assert proposal.lengths == (0, 0)
    assert drafter.context_bytes_per_page(16) == 0
