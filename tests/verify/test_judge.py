"""The step function over ragged, mixed batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dspark.core import DsparkError, Proposal, SamplingParams, Verdict
from dspark.verify import RoundUniforms, RowSampling, acceptance, judge, residual, residual_of_token, warp

from .rounds import Step, make_step

MIXED = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7, top_p=0.9),
    SamplingParams(temperature=1.5, top_k=5),
    SamplingParams(temperature=0.3, min_p=0.1),
]


def by_hand(step: Step, request: int) -> Verdict:
    """The rule for one request, slot by slot, in float64."""
    params, draft, rows = step.params[request], step.drafts[request], step.rows(request)
    if params.greedy:
        best = rows.argmax(1).tolist()
        accepted = next((j for j, token in enumerate(draft) if token != best[j]), len(draft))
        return Verdict(accepted=accepted, next_token=best[accepted])
    gamma = step.proposal.tokens.shape[1]
    uniforms = RoundUniforms.of([step.seeds[request]], [step.rounds[request]], gamma)
    laws = warp(rows.double(), RowSampling.of([params] * len(rows))).numpy()
    for j, token in enumerate(draft):
        q = np.zeros(laws.shape[1])
        ids = step.proposal.draft_to_target
        assert step.proposal.probs is not None
        q[np.arange(len(q)) if ids is None else ids.numpy()] = step.proposal.probs[request, j].double().numpy()
        if uniforms.accept[0, j] >= min(1.0, laws[j, token] / q[token]):
            return Verdict(accepted=j, next_token=pick(np.maximum(laws[j] - q, 0), uniforms.emit[0]))
    return Verdict(accepted=len(draft), next_token=pick(laws[len(draft)], uniforms.emit[0]))


def pick(weights: np.ndarray, point: float) -> int:
    return int(np.searchsorted(weights.cumsum(), point * weights.sum(), side="right"))


@pytest.mark.pitfall(8)
@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("reduced", [False, True])
def test_one_call_equals_the_rule_request_by_request(count: int, reduced: bool) -> None:
    for seed in range(10):
        params = (MIXED * 10)[seed : seed + count]
        ids = torch.from_numpy(np.random.default_rng(seed).permutation(50)[:30]) if reduced else None
        step = make_step(params, seed=seed, draft_ids=ids)
        assert step.verdicts() == [by_hand(step, r) for r in range(count)]


@pytest.mark.pitfall(19)
@pytest.mark.pitfall(30)
def test_neighbours_do_not_matter() -> None:
    """Alone, in a batch and in another order, with long rows and filters: same seed, same verdict."""
    step = make_step((MIXED * 7)[:33], vocab=3000, seed=1, noise=0.3)
    together = step.verdicts()
    assert {v.accepted for v in together} >= {0, 1, 2}
    assert [step.verdicts([r])[0] for r in range(33)] == together
    order = list(reversed(range(33)))
    assert step.verdicts(order) == together[::-1]


@pytest.mark.pitfall(19)
def test_seeds_and_rounds_change_the_numbers() -> None:
    step = make_step([SamplingParams()] * 30, vocab=200)
    assert step.verdicts() == step.verdicts()
    assert step.verdicts() != replace(step, seeds=[s + 1 for s in step.seeds]).verdicts()
    assert step.verdicts() != replace(step, rounds=[s + 1 for s in step.rounds]).verdicts()


@pytest.mark.pitfall(4)
@pytest.mark.pitfall(17)
@pytest.mark.parametrize("options", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.4}], ids=str)
@pytest.mark.parametrize("one_hot", [False, True])
def test_nothing_outside_the_filtered_target_is_emitted(options: dict, one_hot: bool) -> None:
    """Drafts drawn without filters meet a filtered target row."""
    params = [SamplingParams(temperature=1.2, **options)] * 64
    outside = 0
    for seed in range(5):
        drawn = make_step([SamplingParams(temperature=1.2)] * 64, seed=seed)
        step = replace(drawn, params=params)
        for r, verdict in enumerate(step.verdicts(one_hot=one_hot)):
            rows = step.rows(r)
            law = warp(rows, RowSampling.of(params[: len(rows)]))
            emitted = [*step.drafts[r][: verdict.accepted], verdict.next_token]
            assert all(law[j, token] > 0 for j, token in enumerate(emitted))
            outside += sum(bool(law[j, token] == 0) for j, token in enumerate(step.drafts[r]))
    assert outside > 50, "the drafts must have left the filtered set"


@pytest.mark.pitfall(3)
def test_one_hot_proposals_are_accepted_as_often_as_the_target_says() -> None:
    law = np.array([0.5, 0.3, 0.15, 0.05])
    count = 40_000
    rows = torch.from_numpy(np.log(law)).repeat(2 * count, 1)
    drafts = [[r % 4] for r in range(count)]
    uniforms = RoundUniforms.of(range(count), [0] * count, 1)
    verdicts = judge(rows, drafts, RowSampling.of([SamplingParams()]).take(np.zeros(count, int)), uniforms)
    for token in range(4):
        accepted = np.mean([v.accepted for v in verdicts[token::4]])
        assert accepted == pytest.approx(law[token], abs=4 * 0.5 / np.sqrt(count / 4))
        assert all(v.next_token != token for v in verdicts[token::4] if v.accepted == 0)


@pytest.mark.pitfall(5)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.5])
def test_accepted_share_is_the_overlap_of_both_laws(temperature: float) -> None:
    """And the emitted first tokens follow the target's law (chi-square)."""
    vocab, count = 12, 40_000
    rng = np.random.default_rng(8)
    target = rng.normal(size=vocab)
    draft = target + rng.normal(size=vocab) * 0.5
    sampling = RowSampling.of([SamplingParams(temperature=temperature)])
    p, q = (warp(torch.from_numpy(row)[None], sampling)[0].numpy() for row in (target, draft))
    uniforms = RoundUniforms.of(rng.integers(0, 2**63, count), rng.integers(0, 1000, count), 1)
    many = sampling.take(np.zeros(count, int))
    tokens = np.searchsorted(q.cumsum(), uniforms.draft[:, 0] * q.sum(), side="right")
    proposal = Proposal(
        tokens=torch.from_numpy(tokens)[:, None],
        lengths=(1,) * count,
        probs=torch.from_numpy(q).expand(count, 1, vocab),
    )
    verdicts = judge(
        torch.from_numpy(target).expand(2 * count, vocab), tokens[:, None].tolist(), many, uniforms, proposal
    )
    accepted = np.array([v.accepted for v in verdicts])
    overlap = np.minimum(p, q).sum()
    assert 0.1 < overlap < 0.9
    assert accepted.mean() == pytest.approx(overlap, abs=4 * 0.5 / np.sqrt(count))
    first = np.where(accepted == 1, tokens, [v.next_token for v in verdicts])
    expected = p * count
    assert ((np.bincount(first, minlength=vocab) - expected) ** 2 / expected).sum() < 40, "11 degrees of freedom"


def test_equal_laws_always_accept() -> None:
    step = make_step([SamplingParams(temperature=0.8, top_p=0.9)] * 40, noise=0.0, vocab=5000)
    assert [v.accepted for v in step.verdicts()] == [len(d) for d in step.drafts]


def test_greedy_steps_need_no_random_numbers() -> None:
    params = [SamplingParams(temperature=0.0)] * 6
    step = make_step(params, seed=3)
    assert step.proposal.probs is None
    assert judge(step.logits, step.drafts, RowSampling.of(params)) == [by_hand(step, r) for r in range(6)]


def test_requests_without_drafts() -> None:
    step = make_step(MIXED, seed=2)
    bare = replace(step, drafts=[[] for _ in MIXED], logits=torch.stack([step.rows(r)[0] for r in range(5)]))
    assert bare.verdicts() == [by_hand(bare, r) for r in range(5)]
    assert all(v.accepted == 0 for v in bare.verdicts(one_hot=True))


def test_the_input_is_not_changed() -> None:
    step = make_step(MIXED, seed=4)
    logits, probs = step.logits.clone(), step.proposal.probs
    assert probs is not None
    before = probs.clone()
    step.verdicts()
    assert torch.equal(step.logits, logits)
    assert torch.equal(probs, before)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_target_that_overflowed_is_an_error(temperature: float, value: float) -> None:
    params = [SamplingParams(temperature=temperature)]
    logits = torch.zeros(1, 600)
    logits[0, 7] = value
    with pytest.raises(DsparkError, match="not finite"):
        judge(logits, [[]], RowSampling.of(params), RoundUniforms.of([0], [0], 1))


def test_a_drafter_that_overflowed_is_an_error() -> None:
    step = make_step([SamplingParams()] * 8)
    assert step.proposal.probs is not None
    step.proposal.probs.fill_(torch.nan)
    with pytest.raises(DsparkError, match="drafter"):
        step.verdicts()


def test_acceptance_at_the_borders() -> None:
    p = np.array([0.0, 0.0, 0.2, 0.2, 0.2, 1.0])
    q = np.array([0.0, 0.3, 0.0, 0.2, 0.4, 1.0])
    assert acceptance(p, q).tolist() == [0.0, 0.0, 1.0, 1.0, 0.5, 1.0]


def test_empty_residual_falls_back_to_the_target() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.4, 0.0], [0.0, 1.0, 0.0]])
    q = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    found = residual(p, q)
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.15, 0.0], [0.0, 1.0, 0.0]]))
    certain = residual_of_token(p, torch.tensor([0, 1, 1]))
    torch.testing.assert_close(certain, torch.tensor([[0.0, 0.5, 0.0], [0.6, 0.0, 0.0], [0.0, 1.0, 0.0]]))
