"""``dspark profile``: measuring, keeping, and the forms of another engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark import LLM
from dspark.engine import costs as costs_module
from dspark.scheduling import LiveCosts, read_profile

from .conftest import Dspark, one_line

SMALL = ("--max-rows", 10, "--max-requests", 2, "--contexts", "8", "--repeats", 2)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(costs_module, "check_profile", lambda model: ())  # this machine may be busy


@pytest.mark.pitfall(26)
@pytest.mark.pitfall(27)
def test_measured_kept_and_written(on_target: Dspark, drafter_dir: Path, target_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = on_target("profile", "--drafter", drafter_dir, *SMALL, "--export-sglang", "--out", out)
    assert result.exit_code == 0, result.output
    assert "| rows | keys 8 | steps/s | spread |" in result.stdout
    assert "float32" in result.stdout
    assert "threads" in result.stdout
    model = read_profile(out / "report.json")
    assert model.verify.widths == tuple(range(1, 11))
    (kept,) = (tmp_path / "cache" / "profiles").glob("*.json")
    assert read_profile(kept) == model
    assert str(kept) in result.stderr
    assert (out / "costs.png").stat().st_size > 1000
    llm = LLM(str(target_dir), drafter=drafter_dir, dtype="float32", policy="async")
    assert isinstance(llm.costs, LiveCosts)
    assert llm.costs.model == model
    assert set(json.loads((out / "sps.json").read_text())) >= {"bias_seconds", "m_probes", "theta_seconds"}
    plain = json.loads((out / "sps-plain.json").read_text())
    assert plain["sample_batch_tokens"] == list(range(1, 11))
    assert not (out / "sts.json").exists(), "this drafter has no temperatures"


@pytest.mark.parametrize("name", ["sps.json", "sps-plain.json"])
def test_an_imported_table_is_kept(on_target: Dspark, drafter_dir: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    on_target("profile", "--drafter", drafter_dir, *SMALL, "--export-sglang", "--out", out, "--no-keep")
    assert not (tmp_path / "cache" / "profiles").exists()
    result = on_target("profile", "--drafter", drafter_dir, "--import-sglang", out / name)
    assert result.exit_code == 0, result.output
    (kept,) = (tmp_path / "cache" / "profiles").glob("*.json")
    assert "SGLang" in read_profile(kept).note


def test_temperatures_both_ways(on_target: Dspark, drafter_dir: Path, target_dir: Path, tmp_path: Path) -> None:
    block = json.loads((drafter_dir / "config.json").read_text())["block_size"]
    theirs = tmp_path / "theirs.json"
    theirs.write_text(json.dumps({"temperatures": [1.5] * block}))
    llm = LLM(str(target_dir), drafter=drafter_dir, dtype="float32", policy="fixed", calibration=theirs)
    assert llm.calibration.calibration is not None
    out = tmp_path / "out"
    words = ("--drafter", drafter_dir, "--calibration", theirs, *SMALL, "--export-sglang", "--out", out)
    assert on_target("profile", *words).exit_code == 0
    assert json.loads((out / "sts.json").read_text())["temperatures"] == [1.5] * block


def test_bad_input(on_target: Dspark, dspark: Dspark, tmp_path: Path, profiler: Callable[..., object]) -> None:
    assert "name a folder" in one_line(dspark("profile", "--export-sglang"))
    assert "integers with commas" in one_line(dspark("profile", "--contexts", "long"))
    assert "at least one row" in one_line(dspark("profile", "--max-rows", "0"))
    (tmp_path / "bad.json").write_text("{}")
    result = on_target("profile", "--drafter", "none", "--import-sglang", tmp_path / "bad.json")
    assert "no SPS table that SGLang reads" in one_line(result)
