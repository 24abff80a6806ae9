"""Arms share one target and take turns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dspark.core import InputError
from dspark.drafters.dspark import load_checkpoint
from dspark.evaluation import Arm, dflash_drafter, greedy, make_arm, run_prompts, without_sequential_head
from dspark.evaluation.arms import drafter_arms, named_arm
from dspark.target import LoadedTarget

PROMPTS = [(1, 40, 41, 42), (1, 50, 51)]


def texts(arm: Arm) -> tuple[tuple[int, ...], ...]:
    return run_prompts(arm.open(PROMPTS, max_tokens=24, concurrency=2), PROMPTS, greedy(24)).token_ids


def test_arms_take_turns_over_one_target(plain: Arm, fast: Arm) -> None:
    first = texts(plain)
    assert texts(fast) == first
    assert texts(plain) == first


def test_a_run_counts_what_it_does(plain: Arm) -> None:
    llm = plain.open(PROMPTS, max_tokens=10, concurrency=1)
    run = run_prompts(llm, PROMPTS, greedy(10))
    assert run.tokens == sum(map(len, run.token_ids))
    assert sum(step.committed for step in run.steps) == run.tokens
    assert run.rounds == run.round_tokens == run.tokens - len(PROMPTS)
    assert max(len(step.verify_lens) for step in run.steps) == 1
    assert not llm.engine.has_unfinished()


def test_an_interrupted_run_leaves_no_request(plain: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = plain.open(PROMPTS, max_tokens=10, concurrency=2)
    monkeypatch.setattr(llm.engine, "step", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_prompts(llm, PROMPTS, greedy(10))
    monkeypatch.undo()
    assert not llm.engine.has_unfinished()


def test_without_its_sequential_head_the_backbone_stays(drafter_dir: Path, loaded: LoadedTarget) -> None:
    checkpoint = load_checkpoint(drafter_dir)
    bare = without_sequential_head(checkpoint)
    assert bare.config.markov_rank == 0
    assert bare.model.markov_head is None
    assert bare.model.confidence_head is None
    whole = checkpoint.model.state_dict()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in bare.model.state_dict().items())
    drafter = dflash_drafter(checkpoint, loaded)
    assert (drafter.name, drafter.has_confidence) == ("dflash", False)


def test_usual_arms_of_a_drafter(drafter_dir: Path, loaded: LoadedTarget) -> None:
    assert [arm.name for arm in drafter_arms(loaded, str(drafter_dir))] == ["dspark", "dspark threshold:0.5"]
    assert [arm.name for arm in drafter_arms(loaded, str(drafter_dir), ["fixed:2"])] == ["dspark fixed:2"]
    assert drafter_arms(loaded, "none") == ()
    assert drafter_arms(loaded, "auto") == ()


@pytest.mark.pitfall(31)
def test_a_threshold_needs_confidences(loaded: LoadedTarget) -> None:
    with pytest.raises(InputError, match="confidence"):
        make_arm(loaded, "ngram", "threshold:0.5")


def test_a_drafter_of_random_weights(drafter_dir: Path, loaded: LoadedTarget, plain: Arm) -> None:
    """The configuration of the checkpoint, other weights, always the same ones; and the generator is left alone."""
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = (named_arm(loaded, f"random:{drafter_dir}") for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (first.name, first.drafter.block_size, first.drafter.has_confidence) == ("random tiny-drafter", 4, True)
    drafted = [
        run_prompts(arm.open(PROMPTS, max_tokens=24, concurrency=2, record_rounds=True), PROMPTS, greedy(24))
        for arm in (first, second, make_arm(loaded, str(drafter_dir)))
    ]
    traces = [[round_.drafted for stats in run.stats for round_ in stats.traces] for run in drafted]
    assert traces[0] == traces[1] != traces[2]
    assert drafted[0].token_ids == texts(plain)
