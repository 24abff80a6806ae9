"""Policies that look at the token they decide about change the output law, and the same check finds them out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dspark.core import SamplingParams
from dspark.drafters.dspark.config import HeadType
from dspark.scheduling import ConfidenceThreshold, Reveal, StepOutcome, StepView

from .rounds import Law, Tokens, continued, emitted_law, prefix_laws
from .tables import make_world
from .test_lossless import all_prefixes, assert_lossless, measured, planned, verify_lengths

PARAMS = SamplingParams(temperature=1.0)


@dataclass(frozen=True)
class Search:
    """Verify length by throughput, as the method's section 6 defines it, for one request.

    Attributes:
        sps: steps per second at batch 1, 2, ..
        early_stop: stop at the first slot that does not raise the throughput, instead of looking at all of them.
    """

    sps: tuple[float, ...]
    early_stop: bool
    name: str = "search"
    needs_confidence: bool = True

    def begin_step(self, view: StepView) -> np.ndarray:
        return view.limits

    def admit(self, reveal: Reveal) -> None:
        survival = reveal._survival()[0]  # broken into: the retrospective search looks at all of them
        best, best_length, expected = self.sps[0], 0, 1.0
        for length, chance in enumerate(survival, start=1):
            expected += chance
            throughput = expected * self.sps[length]
            if throughput > best:
                best, best_length = throughput, length
            elif self.early_stop:
                break
        reveal.admit_first([best_length])

    def outcome(self, outcome: StepOutcome) -> None:
        pass


def iid_law(p: list[float], q: list[float], gamma: int, lengths: dict[Tokens, int]) -> Law:
    """Law of a round whose target and draft rows are the same at every slot."""
    vocab = len(p)
    paths = {path: float(np.prod([q[x] for x in path])) for path in np.ndindex(*(vocab,) * gamma)}
    prefixes = list(dict.fromkeys(path[: lengths[path]] for path in paths))
    laws = prefix_laws(
        prefixes, lambda _: np.log(p), lambda x: np.array([q] * len(x)).reshape(len(x), vocab), PARAMS, vocab
    )
    return emitted_law(paths, lengths, laws)


def first_token(law: Law, p: list[float]) -> np.ndarray:
    return continued(law, lambda _: np.array(p), len(p), 1)


@pytest.mark.pitfall(6)
@pytest.mark.parametrize(("early_stop", "expected"), [(True, 0.70), (False, 0.85)])
def test_retrospective_search_changes_the_output(early_stop: bool, expected: float) -> None:
    """Paper, appendix A: the second confidence depends on the first token."""
    p, q = [0.7, 0.3], [0.5, 0.5]
    policy = Search(sps=(1.0, 0.5, 0.45), early_stop=early_stop)
    paths = list(np.ndindex(2, 2))
    lengths = verify_lengths(policy, lambda x: 0.8 if not x else (0.9, 0.0)[x[0]], paths)
    assert {lengths[0, 0], lengths[0, 1]} == ({0} if early_stop else {2})
    assert {lengths[1, 0], lengths[1, 1]} == {0}
    found = first_token(iid_law(p, q, 2, lengths), p)
    np.testing.assert_allclose(found, [expected, 1 - expected], atol=1e-9)


@pytest.mark.pitfall(6)
def test_token_that_decides_its_own_verification_changes_the_output() -> None:
    """Verified with probability (1, 0, 1/2) after drawing A, B, C: the mean over both outcomes for C."""
    p, q = [0.5, 0.3, 0.2], [0.25, 0.5, 0.25]
    honest = first_token(iid_law(p, q, 1, {(0,): 1, (1,): 1, (2,): 1}), p)
    np.testing.assert_allclose(honest, p, atol=1e-9)
    trust = (1.0, 0.0, 0.5)
    found = np.zeros(3)
    for threshold in (0.25, 0.75):
        lengths = {(x,): int(trust[x] >= threshold) for x in range(3)}
        found += first_token(iid_law(p, q, 1, lengths), p) / 2
    np.testing.assert_allclose(found, [0.5875, 0.1875, 0.225], atol=1e-9)


@pytest.mark.pitfall(6)
@pytest.mark.parametrize("head", list(HeadType))
def test_the_check_finds_a_threshold_on_the_drawn_token(head: HeadType) -> None:
    """An honest policy fed with confidences that know the token of their own slot fails what all others pass."""
    world = make_world(head, vocab=3, gamma=3, seed=20)
    paths = world.paths(PARAMS)
    laws = measured(world, PARAMS, all_prefixes(list(paths), 3))
    lengths = {}
    for path in paths:
        lengths[path] = planned(ConfidenceThreshold(0.5), [(0.9, 0.1, 0.6)[token] for token in path])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_lossless(emitted_law(paths, lengths, laws), world, PARAMS, 1e-3)
