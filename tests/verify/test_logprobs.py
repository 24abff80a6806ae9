"""Log probabilities of emitted tokens."""

from __future__ import annotations

import pytest
import torch

from dspark.core import SamplingParams
from dspark.verify import RowSampling, judge, token_logprobs


@pytest.mark.pitfall(20)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_alternatives(dtype: torch.dtype) -> None:
    logits = (torch.randn(6, 300, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    expected = logits.double().log_softmax(-1)
    rows, tokens, top_n = [0, 1, 4], [7, 9, int(logits[4].argmax())], [3, 0, 300]
    found = token_logprobs(logits, rows, tokens, top_n)
    for entry, row, token, count in zip(found, rows, tokens, top_n, strict=True):
        assert entry.token == token
        assert entry.logprob == pytest.approx(expected[row, token].item(), abs=1e-5)
        order = sorted(range(300), key=lambda i, row=row: (-expected[row, i].item(), i))[:count]
        assert [i for i, _ in entry.top] == order
        assert [v for _, v in entry.top] == pytest.approx(expected[row, order].tolist(), abs=1e-5)


@pytest.mark.pitfall(20)
def test_a_block_has_the_values_of_plain_decoding() -> None:
    """One entry per emitted token, from the row each came from."""
    table = torch.randn(40, 40, generator=torch.Generator().manual_seed(1)) * 2
    params = RowSampling.of([SamplingParams(temperature=0.0)])
    text = [3]
    for _ in range(5):
        text.append(int(table[text[-1]].argmax()))
    draft = [*text[1:4], 0 if text[4] else 1]
    rows = table[[text[0], *draft]]
    (verdict,) = judge(rows, [draft], params)
    emitted = [*draft[: verdict.accepted], verdict.next_token]
    assert emitted == text[1:5]
    block = token_logprobs(rows, range(4), emitted, [2] * 4)
    for j, entry in enumerate(block):
        (plain,) = token_logprobs(table[[text[j]]], [0], [text[j + 1]], [2])
        assert entry == plain


def test_no_tokens_no_entries() -> None:
    assert token_logprobs(torch.zeros(2, 5), [], [], []) == []


def test_masked_tokens_have_probability_zero() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0]])
    (entry,) = token_logprobs(logits, [0], [1], [3])
    assert entry.logprob == -float("inf")
    assert [i for i, _ in entry.top] == [2, 0, 1]
