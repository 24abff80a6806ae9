"""At temperature 1 answers follow the target's own law, and drafts are accepted as often as they should be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from dspark.core import DraftBatch, Proposal, SamplingParams
from dspark.drafters import Drafter
from dspark.engine import CompletionOutput
from dspark.scheduling import ConfidenceThreshold, FixedLength, Reveal, StepOutcome, StepPolicy, StepView

from .tiny import drain, engine, make_drafter, target_logits, tiny_target, whole

VOCAB, BLOCK, COUNT = 8, 3, 2500
PROMPT = (3, 1, 4, 1, 5)
Context = tuple[int, ...]


@cache
def conditional(temperature: float) -> dict[Context, np.ndarray]:
    """Target distribution after the prompt and each of up to four further tokens' beginnings, by enumeration."""
    contexts = [context for length in range(4) for context in product(range(VOCAB), repeat=length)]
    logits = target_logits(tiny_target(VOCAB), [PROMPT + context for context in contexts])
    probs = torch.softmax(logits.double() / temperature, -1).numpy()
    return dict(zip(contexts, probs, strict=True))


def exact_law(temperature: float) -> dict[Context, float]:
    """Probability of the first three tokens."""
    law = conditional(temperature)
    return {(a, b, c): float(law[()][a] * law[a,][b] * law[a, b][c]) for a, b, c in product(range(VOCAB), repeat=3)}


def chi_square(observed: Counter[Context], law: dict[Context, float]) -> float:
    """p-value of the counts under the law; rare cells are put together."""
    total = sum(observed.values())
    common = {cell: p * total for cell, p in law.items() if p * total >= 5}
    rest = total - sum(common.values())
    statistic = sum((observed[cell] - mean) ** 2 / mean for cell, mean in common.items())
    seen_rest = total - sum(observed[cell] for cell in common)
    statistic += (seen_rest - rest) ** 2 / max(rest, 1e-9)
    freedom = len(common)
    return float(torch.special.gammaincc(torch.tensor(freedom / 2.0), torch.tensor(statistic / 2.0)))


def sample(drafter: Drafter, policy: StepPolicy | None = None, temperature: float = 1.0) -> list[CompletionOutput]:
    """Many answers to one prompt, by continuous batching."""
    core = engine(tiny_target(VOCAB), drafter, policy, num_pages=1500, max_requests=200, max_batch_rows=1200, seed=1)
    names = [core.add_request(PROMPT, SamplingParams(temperature=temperature, max_tokens=5)) for _ in range(COUNT)]
    outputs = drain(core, check=False)
    core.check_integrity()
    return [whole(outputs[name]) for name in names]


def p_value(answers: Sequence[CompletionOutput], temperature: float = 1.0) -> float:
    return chi_square(Counter(answer.token_ids[:3] for answer in answers), exact_law(temperature))


class Watched:
    """A drafter, and every proposal it made with the texts it was made for."""

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner
        self.seen: list[tuple[Context, int, np.ndarray | None]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def propose(self, batch: DraftBatch) -> Proposal:
        proposal = self.inner.propose(batch)
        for row, history in enumerate(batch.histories):
            law = None if proposal.probs is None else proposal.probs[row, 0].double().numpy()
            if proposal.lengths[row]:
                self.seen.append((tuple(history[len(PROMPT) :]), int(proposal.tokens[row, 0]), law))
        return proposal


@pytest.mark.parametrize("kind", ["ngram", "dflash", "vanilla", "gated", "rnn"])
@pytest.mark.pitfall(1)
@pytest.mark.pitfall(2)
@pytest.mark.pitfall(5)
def test_samples_follow_the_target(kind: str) -> None:
    drafter = Watched(make_drafter(kind, tiny_target(VOCAB), block=BLOCK))
    answers = sample(drafter)
    assert p_value(answers) > 1e-3
    target = conditional(1.0)
    short = [entry for entry in drafter.seen if len(entry[0]) <= 3]
    expected = [
        float(target[text][token]) if law is None else float(np.minimum(target[text], law).sum())
        for text, token, law in short
    ]
    rounds = [answer.stats for answer in answers]
    tried, hit = sum(sum(s.reached_at[:1]) for s in rounds), sum(sum(s.accepted_at[:1]) for s in rounds)
    assert tried == len(drafter.seen) >= COUNT
    assert len(short) == tried
    sigma = math.sqrt(sum(p * (1 - p) for p in expected))
    assert abs(hit - sum(expected)) < 4 * sigma


@pytest.mark.parametrize("temperature", [0.4, 1.6])
@pytest.mark.pitfall(1)
def test_other_temperatures(temperature: float) -> None:
    answers = sample(make_drafter("vanilla", tiny_target(VOCAB), block=BLOCK), temperature=temperature)
    assert p_value(answers, temperature) > 1e-3


@pytest.mark.parametrize("policy", [FixedLength(1), ConfidenceThreshold(0.5)], ids=lambda policy: policy.name)
def test_policies_do_not_change_the_law(policy: StepPolicy) -> None:
    answers = sample(make_drafter("vanilla", tiny_target(VOCAB), block=BLOCK), policy)
    lengths = {len(answer.stats.verified_at) for answer in answers}
    assert max(lengths) > 0
    assert p_value(answers) > 1e-3


class Liar(Watched):
    """Drafts its most likely tokens, but says they were drawn from its softmax."""

    def propose(self, batch: DraftBatch) -> Proposal:
        laws: list[torch.Tensor] = []

        def greedy_draws(slot: int, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            laws.append(torch.softmax(logits, -1))
            return logits.argmax(-1), laws[-1]

        return self.inner.propose(
            DraftBatch(
                anchors=batch.anchors,
                anchor_positions=batch.anchor_positions,
                page_table=batch.page_table,
                page_size=batch.page_size,
                histories=batch.histories,
                max_lens=batch.max_lens,
                sampler=greedy_draws,
            )
        )


class Peeking:
    """Verifies a draft only if it is an even token: what is looked at depends on the token itself."""

    name = "peeking"
    needs_confidence = False

    def __init__(self, drafter: Watched) -> None:
        self.drafter = drafter

    def begin_step(self, view: StepView) -> np.ndarray:
        return view.limits

    def admit(self, reveal: Reveal) -> None:
        tokens = [token for _, token, _ in self.drafter.seen[-int((reveal.proposed > 0).sum()) :]]
        chosen = iter(tokens)
        reveal.admit_first([int(next(chosen) % 2 == 0) if length else 0 for length in reveal.proposed])

    def outcome(self, outcome: StepOutcome) -> None:
        pass


@pytest.mark.pitfall(3)
def test_a_lie_about_the_draft_law_is_noticed() -> None:
    assert p_value(sample(Liar(make_drafter("vanilla", tiny_target(VOCAB), block=BLOCK)))) < 1e-6


@pytest.mark.pitfall(6)
def test_a_policy_that_peeks_is_noticed() -> None:
    drafter = Watched(make_drafter("vanilla", tiny_target(VOCAB), block=BLOCK))
    assert p_value(sample(drafter, Peeking(drafter))) < 1e-6
