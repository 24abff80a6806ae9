"""The same verdicts on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dspark.core import SamplingParams
from dspark.verify import LogitEdits, RowSampling, adjust_logits, best_tokens, token_logprobs, warp

from .rounds import make_step

pytestmark = pytest.mark.gpu
OPTIONS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7, top_p=0.9),
    SamplingParams(temperature=1.5, top_p=0.999),
    SamplingParams(temperature=1.5, top_k=50, min_p=0.01),
]


@pytest.mark.parametrize("reduced", [False, True])
def test_verdicts(reduced: bool) -> None:
    ids = torch.arange(0, 3000, 2) if reduced else None
    step = make_step(OPTIONS * 7, vocab=3000, gamma=7, noise=0.3, draft_ids=ids, dtype=torch.float64)
    probs = step.proposal.probs
    assert probs is not None
    moved = replace(step.proposal, probs=probs.cuda(), draft_to_target=None if ids is None else ids.cuda())
    on_gpu = replace(step, logits=step.logits.cuda(), proposal=moved)
    assert on_gpu.verdicts() == step.verdicts()


def test_warp() -> None:
    logits = torch.randn(len(OPTIONS), 49152, dtype=torch.float64) * 2
    sampling = RowSampling.of(OPTIONS)
    torch.testing.assert_close(warp(logits.cuda(), sampling).cpu(), warp(logits, sampling))


def test_edits_logprobs_and_best_tokens() -> None:
    logits = torch.randn(3, 500).bfloat16()
    params = SamplingParams(repetition_penalty=1.3, min_tokens=9, logit_bias={3: 2.0})
    edits = LogitEdits.of(params, [1, 2], stop_ids=[0], vocab_size=500)
    drafts = [[4, 4]]
    found = adjust_logits(logits.cuda(), [edits], drafts)
    torch.testing.assert_close(found.cpu(), adjust_logits(logits, [edits], drafts))
    assert best_tokens(logits.cuda()).tolist() == best_tokens(logits).tolist()
    a, b = token_logprobs(logits, [1], [7], [0]), token_logprobs(logits.cuda(), [1], [7], [0])
    assert a[0].logprob == pytest.approx(b[0].logprob, abs=1e-5)
