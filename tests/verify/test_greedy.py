"""The most likely token, and the greedy rule."""

from __future__ import annotations

import pytest
import torch

from dspark.core import SamplingParams, Verdict
from dspark.verify import RowSampling, best_tokens, greedy_verdict, judge

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shift", [-20.0, 0.0, 20.0])
def test_best_tokens_of_any_type(dtype: torch.dtype, shift: float) -> None:
    logits = (torch.randn(40, 5000, generator=torch.Generator().manual_seed(0)) * 2 + shift).to(dtype)
    values = logits.double()
    best = torch.from_numpy(best_tokens(logits))
    assert torch.equal(values.gather(1, best[:, None])[:, 0], values.amax(1))
    first = torch.tensor([(row == row.max()).nonzero()[0, 0] for row in values])
    assert torch.equal(best, first), "the smallest id among equals"


@pytest.mark.parametrize("dtype", TYPES)
def test_best_tokens_with_masked_ones(dtype: torch.dtype) -> None:
    rows = [[-torch.inf, -3.0, -2.0, -2.0], [-torch.inf, 0.0, -1.0, -5.0], [-torch.inf, -torch.inf, -torch.inf, -9.0]]
    assert best_tokens(torch.tensor(rows, dtype=dtype)).tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    ("best", "draft", "expected"),
    [
        ([7], [], (0, 7)),
        ([7, 8, 9], [7, 8], (2, 9)),
        ([7, 8, 9], [7, 1], (1, 8)),
        ([7, 8, 9], [1, 8], (0, 7)),
    ],
)
def test_rule(best: list[int], draft: list[int], expected: tuple[int, int]) -> None:
    assert greedy_verdict(best, draft) == Verdict(accepted=expected[0], next_token=expected[1])


def test_ragged_blocks_in_one_call() -> None:
    logits = torch.full((6, 10), 0.0)
    for row, token in enumerate([3, 4, 5, 6, 7, 8]):
        logits[row, token] = 1.0
    verdicts = judge(logits, [[3, 4], [], [7]], RowSampling.of([SamplingParams(temperature=0.0)] * 3))
    assert [(v.accepted, v.next_token) for v in verdicts] == [(2, 5), (0, 6), (1, 8)]
