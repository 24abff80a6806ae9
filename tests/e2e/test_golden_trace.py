"""Whole greedy decodings of the reference, reproduced round by round through the engine (tests/golden/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark.core import SamplingParams
from dspark.drafters import DSparkDrafter, load_drafter
from dspark.engine import CompletionOutput, EngineCore, EngineOptions
from dspark.scheduling import ConfidenceThreshold, FixedLength
from dspark.target import PackedTarget, pack_model

GOLDEN = Path(__file__).parents[1] / "golden"
TRACE = json.loads((GOLDEN / "e2e" / "trace.json").read_text())
CASES = TRACE["cases"]


@pytest.fixture(scope="module")
def target() -> PackedTarget:
    return pack_model(AutoModelForCausalLM.from_pretrained(GOLDEN / "target", dtype=torch.float32))


@pytest.fixture(scope="module")
def drafter(target: PackedTarget) -> DSparkDrafter:
    return load_drafter(GOLDEN / "e2e" / "draft", target)


def params(case: dict[str, Any], spare: int = 0) -> SamplingParams:
    stop = tuple(case["stop_token_ids"] or ())
    return SamplingParams(
        temperature=case["temperature"], max_tokens=case["max_new_tokens"] + spare, stop_token_ids=stop
    )


def run(
    target: PackedTarget, drafter: DSparkDrafter | None, threshold: float, work: list[tuple[list[int], SamplingParams]]
) -> list[CompletionOutput]:
    policy = ConfidenceThreshold(threshold) if threshold > 0 else FixedLength()
    core = EngineCore(target, drafter, policy, options=EngineOptions(num_pages=80, record_rounds=True))
    names = [core.add_request(prompt, options) for prompt, options in work]
    done: dict[str, CompletionOutput] = {}
    while core.has_unfinished():
        done |= {output.request_id: output.completion for output in core.step() if output.completion}
        core.check_integrity()
    return [done[name] for name in names]


def check_rounds(case: dict[str, Any], done: CompletionOutput) -> None:
    """The reference drafts whole blocks up to the last round and cuts afterwards; this run has room for that."""
    count = len(case["tokens_per_round"])
    traces = done.stats.traces[:count]
    assert [len(trace.committed) for trace in traces] == case["tokens_per_round"]
    assert [trace.verified for trace in traces] == case["proposed_per_round"]
    assert [trace.accepted for trace in traces] == case["accepted_per_round"]
    for trace, expected in zip(traces, case["rounds"], strict=True):
        assert (trace.anchor_position, trace.anchor) == (expected["start"], expected["anchor_token"])
        shown = len(expected["draft_tokens"])
        assert list(trace.drafted[:shown]) == expected["draft_tokens"]
        assert trace.confidence[: len(expected["confidence"])] == pytest.approx(expected["confidence"], abs=5e-5)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_rounds(case: dict[str, Any], target: PackedTarget, drafter: DSparkDrafter) -> None:
    spare = TRACE["block_size"] + 1
    done = run(target, drafter, case["confidence_threshold"], [(case["prompt_ids"], params(case, spare))])[0]
    check_rounds(case, done)
    assert (case["prompt_ids"] + list(done.token_ids))[: len(case["output_ids"])] == case["output_ids"]


@pytest.mark.parametrize("threshold", sorted({case["confidence_threshold"] for case in CASES}))
def test_outputs_together_and_plain(threshold: float, target: PackedTarget, drafter: DSparkDrafter) -> None:
    """All cases in one batch, ending exactly where the reference ends; plain decoding gives the same."""
    cases = [case for case in CASES if case["confidence_threshold"] == threshold]
    work = [(case["prompt_ids"], params(case)) for case in cases]
    expected = [case["output_ids"] for case in cases]
    for chosen, limit in ((drafter, threshold), (None, 0.0)):
        done = run(target, chosen, limit, work)
        assert [prompt + list(d.token_ids) for (prompt, _), d in zip(work, done, strict=True)] == expected


@pytest.mark.pitfall(30)
def test_rounds_in_a_batch_are_those_alone(target: PackedTarget, drafter: DSparkDrafter) -> None:
    cases = [case for case in CASES if case["confidence_threshold"] == 0]
    spare = TRACE["block_size"] + 1
    done = run(target, drafter, 0.0, [(case["prompt_ids"], params(case, spare)) for case in cases])
    for case, completion in zip(cases, done, strict=True):
        check_rounds(case, completion)
