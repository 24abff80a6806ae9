"""The output law equals the target's, for every head, temperature, filter and honest policy, by exact enumeration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
import torch

from dspark.core import SamplingParams
from dspark.drafters.dspark.config import HeadType
from dspark.scheduling import ConfidenceThreshold, FixedLength, Reveal, StepPolicy, StepView
from dspark.verify import DraftDraws, RowSampling

from .black_box import supremum
from .rounds import Law, Tokens, continued, emitted_law, plain, prefix_laws
from .tables import World, make_world

Confidence = Callable[[Tokens], float]
"""Confidence of the slot after the given drafts; it must not see the token drawn at that slot."""

WARPS = {
    "T=0.3": SamplingParams(temperature=0.3),
    "T=1": SamplingParams(temperature=1.0),
    "T=1.5": SamplingParams(temperature=1.5),
    "T=1,top_k=2": SamplingParams(temperature=1.0, top_k=2),
    "T=1.5,top_p=0.7": SamplingParams(temperature=1.5, top_p=0.7),
    "T=0.3,min_p=0.2": SamplingParams(temperature=0.3, min_p=0.2),
    "T=1.5,all": SamplingParams(temperature=1.5, top_k=3, top_p=0.9, min_p=0.1),
}
HEADS = list(HeadType)


def adversarial(drafts: Tokens) -> float:
    """Trusts a slot by the tokens before it only, in a way that favours some texts."""
    return (0.9, 0.1, 0.7, 0.4, 0.6)[drafts[-1]] if drafts else 0.65


def unsteady(drafts: Tokens) -> float:
    """Another one, reading all tokens before the slot."""
    return float(np.random.default_rng((len(drafts), *drafts)).uniform(0.2, 0.9))


POLICIES: list[tuple[StepPolicy, Confidence]] = [
    *((FixedLength(k), unsteady) for k in range(4)),
    *((ConfidenceThreshold(t), adversarial) for t in (0.3, 0.5, 0.68)),
    *((ConfidenceThreshold(t), unsteady) for t in (0.4, 0.6)),
]


def verify_lengths(policy: StepPolicy, confidence: Confidence, paths: Sequence[Tokens]) -> dict[Tokens, int]:
    """What the real policy plans for each drafted block."""
    lengths = {}
    for path in paths:
        lengths[path] = planned(policy, [confidence(path[:j]) for j in range(len(path))])
    return lengths


def planned(policy: StepPolicy, confidence: Sequence[float]) -> int:
    """How much of one drafted block a policy verifies."""
    one = np.zeros(1, np.int64)
    wanted = policy.begin_step(StepView(step=0, slots=one, generations=one, limits=one + len(confidence)))
    reveal = Reveal(wanted, [confidence])
    policy.admit(reveal)
    return int(reveal.lengths[0])


def measured(
    world: World, params: SamplingParams, prefixes: Sequence[Tokens], **kw: object
) -> dict[Tokens, np.ndarray]:
    if len(world.draft_ids) < world.vocab:
        kw["draft_to_target"] = torch.tensor(world.draft_ids)
    return prefix_laws(prefixes, world.target_logits, world.draft_probs(params), params, world.vocab, **kw)


def all_prefixes(paths: Sequence[Tokens], gamma: int) -> list[Tokens]:
    return list(dict.fromkeys(path[:n] for path in paths for n in range(gamma + 1)))


def assert_lossless(law: Law, world: World, params: SamplingParams, atol: float) -> None:
    assert sum(law.values()) == pytest.approx(1.0, abs=atol)
    target, length = world.target_probs(params), world.gamma + 1
    found = continued(law, target, world.vocab, length)
    np.testing.assert_allclose(found, plain(target, world.vocab, length), atol=atol)


@pytest.mark.pitfall(1)
@pytest.mark.pitfall(2)
@pytest.mark.pitfall(6)
@pytest.mark.parametrize("warping", WARPS)
@pytest.mark.parametrize("head", HEADS)
def test_every_policy_is_lossless(head: HeadType, warping: str) -> None:
    params = WARPS[warping]
    world = make_world(head, vocab=3, gamma=3, seed=HEADS.index(head))
    paths = world.paths(params)
    laws = measured(world, params, all_prefixes(list(paths), world.gamma))
    plans = []
    for policy, confidence in POLICIES:
        lengths = verify_lengths(policy, confidence, list(paths))
        plans.append(tuple(lengths.values()))
        assert_lossless(emitted_law(paths, lengths, laws), world, params, 1e-9)
    assert len(set(plans)) > 3, "the policies must differ on this world"


@pytest.mark.parametrize("vocab", [4, 5])
@pytest.mark.parametrize("head", [HeadType.NONE, HeadType.RNN])
def test_larger_vocabularies(head: HeadType, vocab: int) -> None:
    params = SamplingParams(temperature=1.5, top_p=0.95)
    world = make_world(head, vocab=vocab, gamma=2, seed=7)
    paths = world.paths(params)
    laws = measured(world, params, all_prefixes(list(paths), 2))
    for policy, confidence in POLICIES:
        lengths = verify_lengths(policy, confidence, list(paths))
        assert_lossless(emitted_law(paths, lengths, laws), world, params, 1e-9)


@pytest.mark.parametrize("draft_ids", [(0, 2), (3, 1), (4,)])
def test_reduced_draft_vocabulary(draft_ids: tuple[int, ...]) -> None:
    params = SamplingParams(temperature=1.0)
    world = make_world(HeadType.VANILLA, vocab=5, gamma=2, seed=11, draft_ids=draft_ids)
    paths = world.paths(params)
    laws = measured(world, params, list(paths))
    assert_lossless(emitted_law(paths, dict.fromkeys(paths, 2), laws), world, params, 1e-9)


@pytest.mark.pitfall(3)
@pytest.mark.parametrize("warping", WARPS)
def test_deterministic_proposals(warping: str) -> None:
    """Whatever a greedy drafter or a lookup proposes, verified as a one-hot law."""
    params = WARPS[warping]
    world = make_world(HeadType.NONE, vocab=4, gamma=2, seed=5)
    paths = list(product(range(4), repeat=2))
    laws = prefix_laws(paths, world.target_logits, None, params, 4)
    target = world.target_probs(params)
    for path in paths:
        assert_lossless(emitted_law({path: 1.0}, {path: 2}, laws), world, params, 1e-9)
        assert laws[path][1:].sum() == pytest.approx(target(())[path[0]], abs=1e-9)


def test_single_precision() -> None:
    """The types used in practice: float32 rows and probabilities."""
    params = SamplingParams(temperature=1.0, top_p=0.95)
    world = make_world(HeadType.GATED, vocab=4, gamma=2, seed=3)
    paths = world.paths(params)
    laws = measured(world, params, list(paths), dtype=torch.float32)
    assert_lossless(emitted_law(paths, dict.fromkeys(paths, 2), laws), world, params, 1e-6)


@pytest.mark.pitfall(1)
@pytest.mark.parametrize("warping", WARPS)
def test_drafts_follow_the_probabilities_that_are_reported(warping: str) -> None:
    """p_d of the acceptance rule is the law the token was really drawn from."""
    vocab = 5
    logits = torch.from_numpy(np.random.default_rng(2).normal(size=(1, vocab)))
    sampling = RowSampling.of([WARPS[warping]] * (vocab - 1))
    probs: list[torch.Tensor] = []

    def below(u: np.ndarray) -> np.ndarray:
        ids, law = DraftDraws(sampling, u[:, None])(0, logits.expand(vocab - 1, -1))
        assert law is not None
        probs.append(law[0])
        return ids.numpy() < np.arange(1, vocab)

    steps = supremum(below, vocab - 1)
    np.testing.assert_allclose(np.diff([0, *steps, 1]), probs[0].numpy(), atol=1e-9)
