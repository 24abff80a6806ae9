"""The audit finds planted differences, and knows a near tie from a fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dspark.core import InputError
from dspark.engine import EngineCore, StepOutput
from dspark.evaluation import (
    Arm,
    Audit,
    AuditPlan,
    Difference,
    PromptSet,
    audit_greedy,
    audit_parts,
    first_difference,
    logit_margin,
    make_arm,
)
from dspark.evaluation.audit_report import describe, part_lines, summary_lines
from dspark.evaluation.lossless import audit_arm, audit_drafters, count_texts
from dspark.target import LoadedTarget

SETS = (PromptSet(domain="d", prompts=("abcabc", "hello there", "zz")),)
PLAN = AuditPlan(max_tokens=12, batch_sizes=(1, 2))


def test_drafts_do_not_change_the_text(plain: Arm, fast: Arm, loaded: LoadedTarget) -> None:
    told: list[int] = []
    arms = [fast, make_arm(loaded, "ngram")]
    audit = audit_greedy(plain, arms, SETS, PLAN, progress=lambda done, note: told.append(done))
    assert audit.passed
    assert audit.differences == ()
    assert [(count.arm, count.batch_size, count.identical) for count in audit.counts] == [
        ("dspark", 1, 3), ("dspark", 2, 3), ("ngram", 1, 3), ("ngram", 2, 3),
    ]  # fmt: skip
    assert told == list(range(1, 16))
    assert count_texts(arms, SETS, PLAN) == 15


def spoil(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    """Make every answer that was drafted end in a wrong token."""
    honest = EngineCore.step

    def step(self: EngineCore) -> list[StepOutput]:
        return [spoilt(output) if self.drafter.name == "dspark" else output for output in honest(self)]

    def spoilt(output: StepOutput) -> StepOutput:
        answer = output.completion
        if answer is None:
            return output
        return replace(output, completion=replace(answer, token_ids=(*answer.token_ids[:-1], wrong)))

    monkeypatch.setattr(EngineCore, "step", step)


def test_a_planted_difference_is_found(plain: Arm, fast: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, wrong=263)
    parts = list(audit_parts(plain, [fast], SETS, AuditPlan(max_tokens=12, batch_sizes=(2,))))
    audit = Audit.of(parts)
    assert not audit.passed
    assert [entry.prompt for entry in audit.faults] == [0, 1, 2]
    assert all(entry.got == 263 for entry in audit.faults)
    assert all(entry.margin is not None and entry.margin >= 1e-4 for entry in audit.faults)
    assert audit.counts[0].identical == 0
    assert "3 differ otherwise" in list(summary_lines(audit))[-1]
    lines = list(part_lines(parts[0]))
    assert lines[0].startswith("d, dspark, batch 2: 0 of 3 texts identical")
    assert "dspark, batch 2, d prompt 1: differs at position" in lines[1]


def test_parts_come_one_by_one(plain: Arm, fast: Arm) -> None:
    parts = audit_parts(plain, [fast], SETS, PLAN)
    first = Audit.of([next(parts)])
    assert [(count.arm, count.batch_size) for count in first.counts] == [("dspark", 1)]
    assert next(parts).count.batch_size == 2


def difference(margin: float | None) -> Difference:
    return Difference(arm="a", batch_size=1, domain="d", prompt=0, position=3, expected=5, got=6, margin=margin)


@pytest.mark.parametrize(("margin", "passed"), [(0.0, True), (9e-5, True), (1e-4, False), (2.0, False), (None, False)])
def test_only_a_near_tie_is_forgiven(margin: float | None, passed: bool) -> None:
    audit = Audit(counts=(), differences=(difference(margin),))
    assert audit.passed == passed
    assert ("(near tie)" in describe(audit.differences[0])) == passed


def test_margin_is_the_distance_of_the_targets_logits(plain: Arm, loaded: LoadedTarget, target_dir: Path) -> None:
    from transformers import AutoModelForCausalLM

    context = [1, 40, 41, 42, 43]
    model = AutoModelForCausalLM.from_pretrained(target_dir, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([context])).logits[0, -1]
    first, second = (int(token) for token in logits.topk(2).indices)
    llm = plain.open([context], max_tokens=1, concurrency=2)
    expected = float(logits[first] - logits[second])
    assert logit_margin(llm, context, first, second) == pytest.approx(expected, abs=1e-4)
    assert logit_margin(llm, context, second, first) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("got", "expected", "place"),
    [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1), ((1, 2, 3), (1, 2), 2), ((), (), None)],
)
def test_first_difference(got: tuple, expected: tuple, place: int | None) -> None:
    assert first_difference(got, expected) == place


def test_what_can_be_audited(loaded: LoadedTarget, drafter_dir: Path) -> None:
    assert audit_drafters(loaded) == ("ngram",)  # none is shipped for the tiny target
    assert audit_arm(loaded, str(drafter_dir)).name == "dspark tiny-drafter"
    assert audit_arm(loaded, f"dflash:{drafter_dir}").name == "dflash tiny-drafter"
    with pytest.raises(InputError, match="give dflash:PATH"):
        audit_arm(loaded, "dflash")
    with pytest.raises(InputError, match="drafts nothing"):
        audit_arm(loaded, "auto")


@pytest.mark.parametrize("sizes", [{"max_tokens": 0}, {"batch_sizes": ()}, {"batch_sizes": (0,)}])
def test_plan_sizes(sizes: dict) -> None:
    with pytest.raises(InputError, match=">= 1"):
        AuditPlan(**sizes)
