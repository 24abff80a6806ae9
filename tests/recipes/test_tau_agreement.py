"""Acceptance that training simulates and acceptance in the engine are the same thing on the same texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark.core import CommittedRows
from dspark.drafters import DSparkDrafter
from dspark.recipes.tau_agreement import tau_agreement
from dspark.target import LoadedTarget, pack_model

from ..evaluation.tiny_pair import tiny_tokenizer

GOLDEN = Path(__file__).parents[1] / "golden"
DRAFT = GOLDEN / "e2e" / "draft"
PROMPTS = [case["prompt_ids"] for case in json.loads((GOLDEN / "e2e" / "trace.json").read_text())["cases"]]


@pytest.fixture(scope="module")
def loaded() -> LoadedTarget:
    """The tiny target whose drafter was trained; its tokens have no texts, so any tokenizer will do."""
    target = pack_model(AutoModelForCausalLM.from_pretrained(GOLDEN / "target", dtype=torch.float32))
    return LoadedTarget(target=target, tokenizer=tiny_tokenizer(), name="golden", source=str(GOLDEN), notes=())


@pytest.mark.pitfall(38)
def test_greedy_tau_is_foretold_exactly(loaded: LoadedTarget) -> None:
    found = tau_agreement(loaded, DRAFT, PROMPTS, temperature=0.0, max_tokens=40)
    assert found.engine.tau.value > 2.0  # the drafter is good enough for the comparison to mean something
    assert found.at_rounds == pytest.approx(found.engine.tau.value, abs=1e-9)
    assert found.at_random.blocks > 0


@pytest.mark.pitfall(38)
def test_sampled_tau_is_foretold_within_five_percent(loaded: LoadedTarget) -> None:
    found = tau_agreement(loaded, DRAFT, PROMPTS * 2, temperature=1.0, max_tokens=60)
    assert found.engine.tau.value > 1.1
    assert found.at_rounds == pytest.approx(found.engine.tau.value, rel=0.05)


def test_features_that_are_a_row_off_in_the_engine_are_noticed(
    loaded: LoadedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = DSparkDrafter.observe

    def shifted(self: DSparkDrafter, rows: CommittedRows) -> None:
        assert rows.features is not None
        honest(self, replace(rows, features=rows.features.roll(1, 0)))

    monkeypatch.setattr(DSparkDrafter, "observe", shifted)
    found = tau_agreement(loaded, DRAFT, PROMPTS, temperature=0.0, max_tokens=40)
    assert found.engine.tau.value < 0.9 * found.at_rounds
