"""Sequential temperature scaling against the reference's numbers, and on simulated rounds."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from dspark.calibration import GRID, MIN_ROUNDS, Calibration, Rounds, ece, fit_sts
from dspark.core import InputError

from .simulated import simulate


def _rounds(logits: np.ndarray, labels: np.ndarray) -> Rounds:
    confidence = 1 / (1 + np.exp(-logits.astype(np.float64)))
    return Rounds(
        confidence=confidence,
        horizon=np.full(len(logits), logits.shape[1]),
        accepted=labels.sum(axis=1, dtype=np.int64),
    )


@pytest.fixture(scope="module")
def numbers(golden: Path) -> dict[str, np.ndarray]:
    return load_file(golden / "sts.safetensors")


class TestGolden:
    def _ece(self, rounds: Rounds, calibration: Calibration | None = None) -> list[float]:
        confidence = rounds.confidence if calibration is None else calibration.apply_array(rounds.confidence)
        survival = rounds.survival(confidence)
        return [ece(survival[:, k], rounds.labels[:, k]) for k in range(rounds.block_size)]

    def test_grid(self, numbers):
        assert pytest.approx(numbers["grid"]) == GRID

    def test_fit(self, numbers):
        fit = fit_sts(_rounds(numbers["logits"], numbers["prefix_labels"]))
        assert fit.calibration.temperatures == pytest.approx(numbers["temperatures"])
        np.testing.assert_allclose(fit.ece_curve, numbers["ece_curve"], atol=1e-9)

    @pytest.mark.parametrize("sample", ["", "eval_"])
    def test_ece_before_and_after(self, numbers, sample):
        rounds = _rounds(numbers[sample + "logits"], numbers[sample + "prefix_labels"])
        calibration = Calibration(temperatures=tuple(numbers["temperatures"].tolist()))
        assert self._ece(rounds) == pytest.approx(numbers[sample + "ece_before"], abs=1e-9)
        assert self._ece(rounds, calibration) == pytest.approx(numbers[sample + "ece_after"], abs=1e-9)

    def test_what_the_engine_applies_gives_the_same(self, numbers):
        """From float32 confidences, through torch."""
        rounds = _rounds(numbers["eval_logits"], numbers["eval_prefix_labels"])
        calibration = Calibration(temperatures=tuple(numbers["temperatures"].tolist()))
        stated = torch.sigmoid(torch.from_numpy(numbers["eval_logits"]))
        survival = torch.cumprod(calibration.apply(stated), dim=1).numpy()
        found = [ece(survival[:, k], rounds.labels[:, k]) for k in range(rounds.block_size)]
        assert found == pytest.approx(numbers["eval_ece_after"], abs=1e-4)


def test_fit_is_quick():
    rounds = simulate(20_000).whole()
    start = time.perf_counter()
    fit_sts(rounds)
    assert time.perf_counter() - start < 3


def test_the_smallest_temperature_wins_a_tie():
    rounds = Rounds(confidence=np.full((10, 1), 0.5), horizon=np.full(10, 1), accepted=np.arange(10) % 2)
    assert fit_sts(rounds, min_rounds=1).calibration.temperatures == (GRID[0],)


def test_held_out_error_falls_to_the_noise():
    fit = fit_sts(simulate(20_000, seed=1).whole())
    other = simulate(20_000, seed=2).whole()
    after, before = other.survival(fit.calibration.apply_array(other.confidence)), other.survival()
    for k in range(other.block_size):
        assert ece(after[:, k], other.labels[:, k]) < min(0.015, ece(before[:, k], other.labels[:, k]))


def test_too_few_rounds_are_refused_with_their_number_and_place():
    simulation = simulate(MIN_ROUNDS + 50)
    horizon = np.where(np.arange(MIN_ROUNDS + 50) < MIN_ROUNDS - 1, 5, 3)
    with pytest.raises(
        InputError, match=rf"of {MIN_ROUNDS + 50}, {MIN_ROUNDS - 1} have a known outcome at position 4 of 5"
    ):
        fit_sts(simulation.seen(horizon))


class TestOffsets:
    """Our extension for a head that is wrong on average, as one that was trained on too little text is."""

    def _biased(self, seed: int) -> Rounds:
        """Says 0.6 where a third is accepted."""
        rng = np.random.default_rng(seed)
        logits = rng.normal(-0.7, 0.6, (20_000, 4))
        accepted = np.logical_and.accumulate(rng.random(logits.shape) < 1 / (1 + np.exp(-logits)), axis=1).sum(axis=1)
        stated = 1 / (1 + np.exp(-(logits + 1.2) * 1.4))
        return Rounds(confidence=stated, horizon=np.full(20_000, 4), accepted=accepted)

    def test_they_correct_what_temperatures_cannot(self):
        fitted_on, other = self._biased(1), self._biased(2)
        alone, shifted = (fit_sts(fitted_on, offsets=offsets).calibration for offsets in (False, True))
        assert shifted.temperatures[:2] == pytest.approx((1.4,) * 2, abs=0.25)
        assert shifted.offsets[:2] == pytest.approx((-1.2,) * 2, abs=0.15)
        errors = [
            ece(other.survival(calibration.apply_array(other.confidence))[:, 0], other.labels[:, 0])
            for calibration in (alone, shifted)
        ]
        assert errors[0] > 0.1
        assert errors[1] < 0.02

    def test_a_position_that_hardly_any_round_reaches_follows_its_predecessor(self):
        rounds = self._biased(1).take(np.arange(1000))
        assert rounds.reached[:, 2].sum() > 50 > rounds.reached[:, 3].sum()
        found = fit_sts(rounds, offsets=True).calibration
        assert found.temperatures[3] == found.temperatures[2] != found.temperatures[1]
        assert found.offsets is not None
        assert found.offsets[3] == found.offsets[2]

    def test_mean_survival_is_as_observed(self):
        rounds = self._biased(3)
        survival = rounds.survival(fit_sts(rounds, offsets=True).calibration.apply_array(rounds.confidence))
        assert survival.mean(axis=0) == pytest.approx(rounds.labels.mean(axis=0), abs=1e-3)

    def test_array_and_tensor_agree(self):
        calibration = Calibration(temperatures=(2.0, 0.5), offsets=(-1.0, 0.3)).on(torch.device("cpu"))
        confidence = np.random.default_rng(0).random((50, 2))
        applied = calibration.apply(torch.from_numpy(confidence).float()).numpy()
        np.testing.assert_allclose(calibration.apply_array(confidence), applied, atol=1e-6)
        np.testing.assert_allclose(applied[:, :1], calibration.apply(torch.from_numpy(confidence[:, :1]).float()))

    @pytest.mark.parametrize("offsets", [(1.0,), (float("nan"), 0.0)])
    def test_impossible_ones_are_refused(self, offsets):
        with pytest.raises(InputError, match="offsets must be numbers, one per temperature"):
            Calibration(temperatures=(1.0, 1.0), offsets=offsets)


class TestCalibration:
    two = Calibration(temperatures=(2.0, 0.5))

    def test_divides_logits(self):
        logits = torch.tensor([[1.0, -0.5], [-2.0, 3.0]])
        expected = torch.sigmoid(logits / torch.tensor([2.0, 0.5]))
        torch.testing.assert_close(self.two.apply(torch.sigmoid(logits)), expected)

    def test_array_and_tensor_agree(self):
        confidence = np.random.default_rng(0).random((50, 2))
        applied = self.two.apply(torch.from_numpy(confidence).float()).numpy()
        np.testing.assert_allclose(self.two.apply_array(confidence), applied, atol=1e-6)

    def test_a_short_block_has_the_first_positions(self):
        confidence = torch.tensor([[0.3], [0.9]])
        torch.testing.assert_close(self.two.apply(confidence)[:, 0], torch.sigmoid(torch.logit(confidence[:, 0]) / 2))

    def test_certainty_and_nonsense_stay_what_they_are(self):
        applied = self.two.apply(torch.tensor([[0.0, 1.0], [1.0, torch.nan]]))
        assert applied[0].tolist() == [0.0, 1.0]
        assert applied[1, 1].isnan()
        assert self.two.apply_array(np.array([[0.0, 1.0]])).tolist() == [[0.0, 1.0]]

    def test_order_at_a_position_stays(self):
        confidence = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
        assert (self.two.apply(confidence).argsort(0) == confidence.argsort(0)).all()

    def test_an_entry_reads_only_itself(self):
        """Hence a policy that looks at entries 0 .. j only stays non-anticipating."""
        one, other = torch.tensor([[0.4, 0.2]]), torch.tensor([[0.4, 0.9]])
        assert self.two.apply(one)[0, 0] == self.two.apply(other)[0, 0]

    @pytest.mark.parametrize("temperatures", [(), (1.0, 0.0), (-1.0,), (float("nan"),), (float("inf"),)])
    def test_impossible_temperatures_are_refused(self, temperatures):
        with pytest.raises(InputError, match="temperatures must be positive"):
            Calibration(temperatures=temperatures)

    def test_moved_is_equal(self):
        assert self.two.on(torch.device("cpu")) == self.two
