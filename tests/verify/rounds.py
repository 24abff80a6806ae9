"""Random ragged steps for tests of the step function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dspark.core import Proposal, SamplingParams, Verdict
from dspark.verify import DraftDraws, RoundUniforms, RowSampling, judge


@dataclass(frozen=True)
class Step:
    """One step of R requests: rows, drafts, options and random numbers."""

    params: list[SamplingParams]
    seeds: list[int]
    rounds: list[int]
    drafts: list[list[int]]
    logits: torch.Tensor
    proposal: Proposal

    def rows(self, request: int) -> torch.Tensor:
        first = sum(len(d) + 1 for d in self.drafts[:request])
        return self.logits[first : first + len(self.drafts[request]) + 1]

    def verdicts(self, requests: Sequence[int] | None = None, *, one_hot: bool = False) -> list[Verdict]:
        """Verdicts of some requests in one call, in the given order."""
        chosen = list(range(len(self.params))) if requests is None else list(requests)
        gamma = self.proposal.tokens.shape[1]
        return judge(
            torch.cat([self.rows(r) for r in chosen]),
            [self.drafts[r] for r in chosen],
            RowSampling.of([self.params[r] for r in chosen]),
            RoundUniforms.of([self.seeds[r] for r in chosen], [self.rounds[r] for r in chosen], gamma),
            None if one_hot else self.proposal,
            chosen,
        )


def make_step(
    params: list[SamplingParams],
    *,
    vocab: int = 50,
    gamma: int = 4,
    seed: int = 0,
    draft_ids: torch.Tensor | None = None,
    noise: float = 0.7,
    dtype: torch.dtype = torch.float32,
) -> Step:
    """Draft rows are the target's plus noise, so acceptance is between none and all; verify lengths are random."""
    rng = np.random.default_rng(seed)
    count = len(params)
    target = torch.from_numpy(rng.normal(size=(count, gamma + 1, vocab)) * 2).to(dtype)
    draft = target[:, :gamma] + torch.from_numpy(rng.normal(size=(count, gamma, vocab)) * noise).to(dtype)
    seeds, rounds = list(range(100, 100 + count)), rng.integers(0, 50, count).tolist()
    sampler = DraftDraws(RowSampling.of(params), RoundUniforms.of(seeds, rounds, gamma).draft)
    ids = torch.arange(vocab) if draft_ids is None else draft_ids
    drawn = [sampler(j, draft[:, j, ids]) for j in range(gamma)]
    probs = None if drawn[0][1] is None else torch.stack([law for _, law in drawn if law is not None], 1)
    tokens = ids[torch.stack([entry for entry, _ in drawn], 1)]
    lens = rng.integers(0, gamma + 1, count).tolist()
    return Step(
        params=params,
        seeds=seeds,
        rounds=rounds,
        drafts=[tokens[r, :n].tolist() for r, n in enumerate(lens)],
        logits=torch.cat([target[r, : n + 1] for r, n in enumerate(lens)]),
        proposal=Proposal(tokens=tokens, lengths=(gamma,) * count, probs=probs, draft_to_target=draft_ids),
    )
