"""A drafter that breaks its contract is named in one sentence, and nothing of what it proposed is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dspark.core import DraftBatch, DsparkError, Proposal, SamplingParams

from .tiny import Oracle, completions, drain, engine, tiny_target, whole

VOCAB = 8


class Scripted(Oracle):
    """Returns whatever it is told to, made from the right answer's parts."""

    def __init__(self, make: Callable[..., Any]) -> None:
        super().__init__([], VOCAB)
        self.make = make

    def propose(self, batch: DraftBatch) -> Any:
        rows, slots = len(batch.max_lens), max(batch.max_lens)
        return self.make(torch.zeros(rows, slots, dtype=torch.int64), batch.max_lens, torch.ones(rows, slots, VOCAB))


BROKEN: dict[str, tuple[Callable[..., Any], str]] = {
    "nothing": (lambda t, n, p: None, "must return a Proposal, got NoneType"),
    "id too large": (lambda t, n, p: Proposal(tokens=t + VOCAB, lengths=n), r"ids must be in \[0, 8\), got 8 to 8"),
    "negative id": (lambda t, n, p: Proposal(tokens=t - 1, lengths=n), r"ids must be in \[0, 8\), got -1"),
    "half a token": (lambda t, n, p: Proposal(tokens=t + 0.5, lengths=n), "tokens must be int64"),
    "rows missing": (lambda t, n, p: Proposal(tokens=t[:-1], lengths=n), "tokens must be int64"),
    "rows too many": (lambda t, n, p: Proposal(tokens=torch.cat([t, t]), lengths=n), "tokens must be int64"),
    "lengths missing": (lambda t, n, p: Proposal(tokens=t, lengths=n[:-1]), "lengths must be 2 integers"),
    "broken lengths": (lambda t, n, p: Proposal(tokens=t, lengths=tuple(map(float, n))), "lengths must be 2 integers"),
    "too long": (lambda t, n, p: Proposal(tokens=torch.cat([t, t], 1), lengths=tuple(k + 1 for k in n)), "at most"),
    "negative length": (lambda t, n, p: Proposal(tokens=t, lengths=tuple(-1 for _ in n)), "it proposed -1 tokens"),
    "longer than given": (lambda t, n, p: Proposal(tokens=t[:, :1], lengths=n), "tensor: 1"),
    "law of fewer rows": (lambda t, n, p: Proposal(tokens=t, lengths=n, probs=p[:-1]), "probs must be float"),
    "law of fewer slots": (lambda t, n, p: Proposal(tokens=t, lengths=n, probs=p[:, :1]), "probs must be float"),
    "law of one token": (lambda t, n, p: Proposal(tokens=t, lengths=n, probs=p[..., :1]), "probs must be float"),
    "law of integers": (lambda t, n, p: Proposal(tokens=t, lengths=n, probs=p.long()), "probs must be float"),
    "map too short": (
        lambda t, n, p: Proposal(tokens=t, lengths=n, probs=p, draft_to_target=torch.arange(3)),
        "probs must be float",
    ),
    "confidence of fewer slots": (
        lambda t, n, p: Proposal(tokens=t, lengths=n, confidence=p[:, :1, 0]),
        "confidence must be",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_proposals_are_refused_and_leave_no_trace(name: str) -> None:
    make, message = BROKEN[name]
    target = tiny_target(VOCAB)
    prompts = [[1, 2, 3], [2, 1]]
    params = SamplingParams(temperature=1.0, max_tokens=6, seed=1)
    drafter = Scripted(make)
    core = engine(target, drafter)
    names = [core.add_request(prompt, params) for prompt in prompts]
    first = core.step()
    with pytest.raises(DsparkError, match=f"'oracle'.*{message}"):
        core.step()
    core.check_integrity()
    drafter.make = lambda tokens, lengths, probs: Proposal(tokens=tokens[:, :0], lengths=tuple(0 for _ in lengths))
    outputs = drain(core)
    answers = [whole([o for o in [*first, *outputs[name]] if o.request_id == name]) for name in names]
    expected = completions(engine(target), prompts, params)
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in expected]
