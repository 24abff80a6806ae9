"""From prompts to a saved calibration, over the tiny pair; the numbers themselves on simulated recordings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dspark import LLM
from dspark.calibration import Rounds, parse_artefact, read_artefact, save_artefact
from dspark.core import InputError
from dspark.drafters import NgramDrafter, load_drafter
from dspark.evaluation import PromptSet
from dspark.recipes.calibration import (
    CalibrationPlan,
    Recording,
    artefact_of,
    calibrate,
    check_calibratable,
    count_answers,
    record,
)
from dspark.recipes.calibration_report import CalibrationReport, write_report
from dspark.target import LoadedTarget

from ..calibration.simulated import TRUE_TEMPERATURES, simulate
from ..evaluation.tiny_pair import save_tiny_drafter

SETS = tuple(
    PromptSet(domain=domain, prompts=tuple(f"{domain} {number}" for number in range(4))) for domain in ("one", "two")
)
PLAN = CalibrationPlan(samples=2, max_tokens=24, min_rounds=5, concurrency=4)


@pytest.fixture(scope="module")
def drafter_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_drafter(tmp_path_factory.mktemp("calibration") / "tiny-drafter")


@pytest.fixture(scope="module")
def recording(loaded: LoadedTarget, drafter_dir: Path) -> Recording:
    told: list[int] = []
    made = record(
        loaded, load_drafter(drafter_dir, loaded.target), SETS, PLAN, progress=lambda done, _: told.append(done)
    )
    assert told == list(range(1, count_answers(SETS, PLAN) + 1))
    return made


def _simulated(prompts: int = 40, rounds: int = 300) -> Recording:
    parts = [simulate(rounds, seed=100 + number).whole() for number in range(prompts)]
    return Recording(
        domains=("some",) * prompts, rounds=tuple(parts), answers=prompts, tokens=2, target_rounds=1
    )  # fmt: skip


class TestRecording:
    def test_every_round_of_every_prompt_is_there(self, recording: Recording):
        assert recording.domains == ("one",) * 4 + ("two",) * 4
        assert recording.answers == count_answers(SETS, PLAN) == 16
        assert all(len(rounds) > 5 for rounds in recording.rounds)
        assert recording.tau >= 1

    def test_nothing_is_censored_but_what_follows_a_drafted_stop_token(self, recording: Recording):
        rounds = Rounds.join(recording.rounds)
        assert rounds.censored.mean() < 0.1

    def test_it_can_be_repeated(self, loaded: LoadedTarget, drafter_dir: Path, recording: Recording):
        again = record(loaded, load_drafter(drafter_dir, loaded.target), SETS, PLAN, progress=lambda *_: None)
        for one, other in zip(recording.rounds, again.rounds, strict=True):
            np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-5)

    def test_greedy_is_sampled_once(self):
        plan = CalibrationPlan(temperatures=(0.0, 1.0), samples=3)
        assert [option.temperature for option in plan.options(0)] == [0.0, 1.0, 1.0, 1.0]
        assert len({option.seed for number in (0, 1) for option in plan.options(number)[1:]}) == 6

    def test_drafters_that_cannot_be_calibrated(self, drafter_dir: Path, loaded: LoadedTarget, tmp_path: Path):
        with pytest.raises(InputError, match="'ngram' has no confidence head"):
            check_calibratable(NgramDrafter())
        made = load_drafter(drafter_dir, loaded.target)
        assert check_calibratable(made) == drafter_dir
        made.folder = None
        with pytest.raises(InputError, match="only a drafter with a checkpoint"):
            check_calibratable(made)


class TestCalibrating:
    def test_halves_hold_whole_prompts_and_half_of_every_domain(self):
        parts = [Rounds(confidence=np.full((50, 1), 0.5), horizon=np.ones(50, int), accepted=np.full(50, n % 2))
                 for n in range(8)]  # fmt: skip
        recording = Recording(
            domains=("a", "b", "a", "b", "a", "b", "a", "b"), rounds=tuple(parts), answers=8, tokens=1, target_rounds=1
        )
        found = calibrate(recording, CalibrationPlan(min_rounds=10))
        assert (found.fit_rounds, found.held_out_rounds) == (200, 200)
        assert found.before.survival[0].observed == pytest.approx(0.5)  # two prompts of "b" accept, two of "a" do not

    def test_the_error_falls_on_rounds_it_was_not_fitted_on(self):
        found = calibrate(_simulated(), CalibrationPlan())
        assert found.fit.calibration.temperatures == pytest.approx(TRUE_TEMPERATURES, abs=0.4)
        assert found.before.mean_ece > 0.04
        assert found.after.mean_ece < 0.02
        assert found.worse == ()
        for before, after in zip(found.before.conditional, found.after.conditional, strict=True):
            assert after.brier < before.brier + 1e-3
            assert after.auroc == pytest.approx(before.auroc)  # the order at a position stays

    def test_offsets_are_fitted_beside_the_temperatures_and_used(self, drafter_dir: Path):
        found = calibrate(_simulated(), CalibrationPlan(offsets=True))
        assert found.used.offsets == pytest.approx((0,) * 5, abs=0.3)  # nothing to shift in these rounds
        assert found.after.mean_ece < 0.02
        artefact = artefact_of(found, folder=drafter_dir, dataset="some", target="t", plan=CalibrationPlan())
        assert artefact.calibration == found.used
        assert artefact.temperatures == found.fit.calibration.temperatures
        assert artefact.ece_after == tuple(p.ece for p in found.scaled.survival)
        assert artefact.ece_applied == tuple(p.ece for p in found.after.survival)
        assert parse_artefact(artefact.to_json()) == artefact

    def test_too_little(self):
        with pytest.raises(InputError, match="two prompts at least"):
            calibrate(_simulated(prompts=1), CalibrationPlan())
        with pytest.raises(InputError, match=r"too few rounds to calibrate: of 150, 150 have .* at least 200"):
            calibrate(_simulated(prompts=2, rounds=150), CalibrationPlan())

    @pytest.mark.parametrize(
        ("field", "value"), [("samples", 0), ("max_tokens", 0), ("temperatures", ()), ("temperatures", (-1.0,))]
    )
    def test_impossible_plans(self, field, value):
        with pytest.raises(InputError, match=field):
            CalibrationPlan(**{field: value})


@pytest.fixture(scope="module")
def report(recording: Recording, drafter_dir: Path) -> CalibrationReport:
    found = calibrate(recording, PLAN)
    artefact = artefact_of(found, folder=drafter_dir, dataset="one, two", target="tiny", plan=PLAN)
    return CalibrationReport.of(recording, found, artefact, drafter="tiny-drafter", plan=PLAN)


class TestReport:
    def test_what_is_saved_is_what_the_engine_loads(
        self, report: CalibrationReport, drafter_dir: Path, loaded: LoadedTarget, tmp_path: Path
    ):
        save_artefact(tmp_path / "sts.json", report.artefact)
        assert read_artefact(tmp_path / "sts.json") == report.artefact
        llm = LLM(loaded, drafter=drafter_dir, calibration=tmp_path)
        assert llm.calibration.calibration == report.found.fit.calibration

    def test_errors_in_the_file_are_of_the_held_out_half(self, report: CalibrationReport):
        assert report.artefact.ece_after == tuple(p.ece for p in report.found.after.survival)
        assert report.artefact.num_samples == report.found.fit_rounds

    def test_json_has_no_nan_and_everything_else(self, report: CalibrationReport):
        content = json.loads(report.to_json(), parse_constant=lambda word: pytest.fail(word))
        assert content["rounds"]["held_out"] == report.found.held_out_rounds
        assert len(content["after"]["survival"]) == 4
        assert parse_artefact(json.dumps(content["artefact"])).temperatures == report.artefact.temperatures

    def test_markdown(self, report: CalibrationReport):
        text = report.to_markdown()
        assert "Held-out error of survival" in text
        assert f"{report.found.held_out_rounds} rounds of other prompts" in text
        assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 * (2 + 4) + 1

    def test_files(self, report: CalibrationReport, tmp_path: Path):
        pytest.importorskip("matplotlib")
        written = write_report(report, tmp_path)
        assert [path.name for path in written] == ["calibration.json", "calibration.md", "calibration.png"]
        assert written[2].read_bytes().startswith(b"\x89PNG")

    def test_without_matplotlib(self, report: CalibrationReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("dspark.recipes.calibration_report.can_plot", lambda: False)
        assert [path.suffix for path in write_report(report, tmp_path)] == [".json", ".md"]
