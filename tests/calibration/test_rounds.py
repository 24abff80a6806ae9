"""What is known of a round: censored is not failed, and whether a label is used must not depend on the outcome."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dspark.calibration import Rounds, fit_sts, reliability_by_position

from .simulated import TRUE_TEMPERATURES, simulate, threshold


@dataclass
class Trace:
    drafted: tuple[int, ...]
    confidence: tuple[float, ...]
    verified: int
    accepted: int


def _one(verified: int, accepted: int, drafted: int = 5) -> Rounds:
    return Rounds.of([Trace((7,) * drafted, (0.5,) * drafted, verified, accepted)], 5)


def test_a_position_behind_a_rejection_is_a_known_failure():
    rounds = _one(verified=5, accepted=2)
    assert rounds.labels.tolist() == [[True, True, False, False, False]]
    assert rounds.known.all()


def test_a_position_that_was_not_verified_is_unknown():
    rounds = _one(verified=3, accepted=3)
    assert rounds.known.tolist() == [[True, True, True, False, False]]
    assert rounds.censored.tolist() == [[False, False, False, True, True]]


def test_what_is_used_does_not_depend_on_the_outcome():
    assert (_one(verified=3, accepted=3).known == _one(verified=3, accepted=1).known).all()


def test_conditional_labels_end_with_the_first_rejection():
    assert _one(verified=4, accepted=1).reached.tolist() == [[True, True, False, False, False]]
    assert _one(verified=4, accepted=4).reached.tolist() == [[True, True, True, True, False]]


def test_what_was_not_proposed_is_neither_known_nor_censored():
    rounds = _one(verified=2, accepted=2, drafted=2)
    assert not (rounds.known | rounds.censored)[0, 2:].any()
    assert np.isnan(rounds.survival()[0, 2:]).all()


@pytest.mark.parametrize(("verified", "accepted"), [(2, 2), (5, 1)])
def test_knowledge_ends_with_a_drafted_stop_token_whether_it_was_accepted_or_not(verified, accepted):
    trace = Trace((7, 99, 7, 7, 7), (0.5,) * 5, verified, accepted)
    rounds = Rounds.of([trace], 5, stop_ids={99})
    assert rounds.known.sum() == 2
    assert rounds.accepted.tolist() == [accepted]


def test_rounds_without_confidence_are_left_out():
    assert len(Rounds.of([Trace((), (), 0, 0), Trace((7,), (0.5,), 1, 0)], 5)) == 1


def test_parts_join_and_split():
    rounds = Rounds.join([_one(5, 2), _one(3, 3)])
    assert len(rounds) == 2
    assert rounds.take(np.array([False, True])).horizon.tolist() == [3]


class TestPolicyThatLooksAtConfidences:
    """Verify lengths from earlier confidences alone: our labels are fair, those of two tempting shortcuts are not."""

    simulation = simulate(60_000, seed=3)
    horizon = threshold(simulation.confidence, 0.8)

    def _bias(self, rounds: Rounds, labels: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Mean label minus mean true survival, per position, over the entries that are used."""
        logits = np.log(rounds.confidence / (1 - rounds.confidence)) / np.array(TRUE_TEMPERATURES)
        true = np.cumprod(1 / (1 + np.exp(-logits)), axis=1)
        return np.array([(labels - true)[used[:, k], k].mean() for k in range(rounds.block_size)])

    def test_ours_is_fair_at_every_position(self):
        rounds = self.simulation.seen(self.horizon)
        assert np.abs(self._bias(rounds, rounds.labels, rounds.known)).max() < 0.015

    def test_unverified_as_failed_is_biased(self):
        rounds = self.simulation.seen(self.horizon)
        assert self._bias(rounds, rounds.labels, np.ones_like(rounds.known)).max() < -0.1

    def test_keeping_what_a_rejection_makes_certain_is_biased(self):
        rounds = self.simulation.seen(self.horizon)
        certain = rounds.known | (rounds.accepted < rounds.horizon)[:, None]
        assert self._bias(rounds, rounds.labels, certain)[1:].max() < -0.03

    def test_the_fit_finds_the_true_temperatures_and_the_shortcut_does_not(self):
        rounds = self.simulation.seen(self.horizon)
        ours = np.array(fit_sts(rounds).calibration.temperatures)
        n, g = rounds.confidence.shape
        naive = Rounds(confidence=rounds.confidence, horizon=np.full(n, g), accepted=rounds.accepted)
        theirs = np.array(fit_sts(naive).calibration.temperatures)
        assert np.abs(ours - TRUE_TEMPERATURES).max() < 0.3
        assert np.abs(theirs - TRUE_TEMPERATURES).max() > 1

    def test_conditional_reliability_is_fair_too(self):
        rounds = self.simulation.seen(self.horizon)
        right = fit_sts(self.simulation.whole()).calibration.apply_array(rounds.confidence)
        assert max(p.ece for p in reliability_by_position(right, rounds.labels, rounds.reached)) < 0.03


def test_a_selected_population_need_not_speak_for_all():
    """The limit: where confidences do not say everything, a fit on selected rounds is right for those only."""
    rng = np.random.default_rng(0)
    hard = rng.random(40_000) < 0.5
    first = np.where(hard, 0.3, 0.8)
    confidence = np.stack([first, np.full(40_000, 0.6)], axis=1)  # the second slot cannot tell hard from easy
    accept = rng.random((40_000, 2)) < np.stack([first, np.where(hard, 0.3, 0.9)], axis=1)
    accepted = np.logical_and.accumulate(accept, axis=1).sum(axis=1)
    horizon = np.where(hard, 0, 2)  # a threshold of 0.5 on the first confidence
    rounds = Rounds(confidence=confidence, horizon=horizon, accepted=np.minimum(accepted, horizon))
    second = rounds.reached[:, 1]
    assert rounds.labels[second, 1].mean() == pytest.approx(0.9, abs=0.01)
    assert accept[:, 1].mean() == pytest.approx(0.6, abs=0.01)  # what the confidence says, and is right about
