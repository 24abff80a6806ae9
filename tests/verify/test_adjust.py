"""Bias, penalties and min_tokens: every row of a block as plain decoding would have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.core import InputError, SamplingParams
from dspark.verify import LogitEdits, RowSampling, TokenCounts, adjust_logits, judge

from .reference import adjusted

VOCAB = 23
STOPS = (0, 4)
KINDS = [
    {},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.6},
    {"presence_penalty": 0.9},
    {"frequency_penalty": -0.4},
    {"min_tokens": 5, "max_tokens": 9},
    {"logit_bias": {3: 1.5, 0: -9.0, 22: 1.0}},
    {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "min_tokens": 3,
        "logit_bias": {4: 9.0, 1: -2.0},
    },
]


def edits_of(params: SamplingParams, prompt: list[int], output: list[int]) -> LogitEdits | None:
    edits = LogitEdits.of(params, prompt, stop_ids=STOPS, vocab_size=VOCAB)
    if edits is not None:
        for start in range(0, len(output), 3):
            edits.commit(output[start : start + 3])
    return edits


TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=12)


@pytest.mark.pitfall(16)
@settings(max_examples=60, deadline=None)
@given(requests=st.lists(st.tuples(st.sampled_from(KINDS), TOKENS, TOKENS, TOKENS), min_size=1, max_size=5))
def test_rows_have_the_history_of_plain_decoding(requests: list) -> None:
    drafts = [draft for _, _, _, draft in requests]
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(sum(len(d) + 1 for d in drafts), VOCAB)) * 3)
    before = logits.clone()
    edits = [edits_of(SamplingParams(**kind), prompt, output) for kind, prompt, output, _ in requests]
    found = adjust_logits(logits, edits, drafts)
    assert torch.equal(logits, before)
    row = 0
    for kind, prompt, output, draft in requests:
        for j in range(len(draft) + 1):
            expected = adjusted(logits[row].numpy(), SamplingParams(**kind), prompt, [*output, *draft[:j]], STOPS)
            np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-12)
            row += 1


def test_nothing_to_do_costs_nothing() -> None:
    logits = torch.randn(3, VOCAB)
    assert LogitEdits.of(SamplingParams(), [1, 2], stop_ids=STOPS, vocab_size=VOCAB) is None
    assert adjust_logits(logits, [None, None], [[1], []]) is logits


def test_half_precision_rows_become_single() -> None:
    """A penalty of 0.01 is less than the spacing of bfloat16 numbers; it must not vanish."""
    logits = torch.full((2, VOCAB), 20.0, dtype=torch.bfloat16)
    edits = edits_of(SamplingParams(presence_penalty=0.01), [1], [2])
    found = adjust_logits(logits, [None, edits], [[], []])
    assert found.dtype == torch.float32
    assert found[0].tolist() == [20.0] * VOCAB
    assert found[1, 2].item() == pytest.approx(19.99)
    assert found[1, 1].item() == 20.0


@pytest.mark.pitfall(18)
def test_rejected_drafts_leave_no_trace() -> None:
    params = SamplingParams(frequency_penalty=1.0, repetition_penalty=2.0)
    edits, fresh = edits_of(params, [1, 2], [3]), edits_of(params, [1, 2], [3, 7])
    logits = torch.ones(1, VOCAB)
    adjust_logits(torch.ones(4, VOCAB), [edits], [[7, 9, 9]])
    assert edits is not None
    edits.commit([7])
    assert torch.equal(adjust_logits(logits, [edits], [[]]), adjust_logits(logits, [fresh], [[]]))


@pytest.mark.pitfall(16)
@pytest.mark.pitfall(18)
@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_greedy_blocks_equal_plain_decoding(kind: dict) -> None:
    """Blocks of good and bad drafts give the very text that one token at a time gives."""
    params = SamplingParams(temperature=0.0, **kind)
    table = torch.from_numpy(np.random.default_rng(1).normal(size=(VOCAB, VOCAB)) * 2)
    prompt = [2, 3, 3]

    def write(length: int, block: int) -> list[int]:
        rng = np.random.default_rng(5)
        edits, text = edits_of(params, prompt, []), list(prompt)
        while len(text) < length:
            draft = oracle[len(text) : len(text) + block] if block else []
            draft = [token if rng.random() < 0.7 else int(rng.integers(VOCAB)) for token in draft]
            rows = table[[text[-1], *draft]]
            (verdict,) = judge(adjust_logits(rows, [edits], [draft]), [draft], RowSampling.of([params]))
            new = [*draft[: verdict.accepted], verdict.next_token]
            if edits is not None:
                edits.commit(new)
            text += new
        return text[:length]

    oracle: list[int] = []
    oracle = write(60, 0)
    assert len(set(oracle[3:])) > 1
    assert write(60, 3) == oracle


@pytest.mark.pitfall(17)
def test_min_tokens_masks_stops_row_by_row() -> None:
    edits = edits_of(SamplingParams(min_tokens=3), [1], [5])
    found = adjust_logits(torch.zeros(4, VOCAB), [edits], [[6, 7, 8]])
    assert torch.isinf(found[:, 0]).tolist() == [True, True, False, False]
    assert torch.isinf(found).sum(1).tolist() == [2, 2, 0, 0]


def test_bias_of_an_unknown_token_is_refused() -> None:
    with pytest.raises(InputError, match="logit_bias names token 23, but the model has tokens 0 to 22"):
        LogitEdits.of(SamplingParams(logit_bias={23: 1.0}), [1], stop_ids=STOPS, vocab_size=VOCAB)


def test_stop_ids_the_model_lacks_are_ignored() -> None:
    edits = LogitEdits.of(SamplingParams(min_tokens=1), [1], stop_ids=(4, 99), vocab_size=VOCAB)
    assert torch.isinf(adjust_logits(torch.zeros(1, VOCAB), [edits], [[]])).sum() == 1


def test_counts_grow_without_limit() -> None:
    rng = np.random.default_rng(0)
    prompt, output = rng.integers(0, 5000, 300).tolist(), rng.integers(0, 5000, 4000).tolist()
    counts = TokenCounts(prompt)
    for start in range(0, len(output), 7):
        counts.commit(output[start : start + 7])
    ids, seen, found = counts.along([output[0], 6000])
    assert sorted(ids.tolist()) == sorted({*prompt, *output, 6000})
    for column, token in enumerate(ids.tolist()):
        base = output.count(token) if token < 6000 else 0
        more = [0, 1, 1] if token == output[0] else [0, 0, int(token == 6000)]
        assert found[:, column].tolist() == [base + m for m in more]
        assert seen[:, column].tolist() == ([True] * 3 if token < 6000 else [False, False, True])
