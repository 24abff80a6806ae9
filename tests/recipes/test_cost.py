"""What a run takes, said without running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dspark.core import InputError
from dspark.data.conversation import Conversation, append_conversations
from dspark.drafters.dspark import DSparkModel
from dspark.recipes import find_recipe
from dspark.recipes.cost import estimate_recipe, read_sizes
from dspark.recipes.registry import RECIPES
from dspark.target import LoadedTarget
from dspark.training.config import Parallel
from dspark.training.cost import Assumptions, TargetSizes, estimate

QWEN_4B = TargetSizes(name="4B", parameters=4_022_468_096, hidden_size=2560, vocab_size=151_936)
GIVEN = Assumptions(mean_length=500.0, flops=1e14, sequences=1000)


def test_parameters_are_those_of_the_model() -> None:
    drafter = find_recipe("tiny").training.drafter
    cost = estimate(find_recipe("tiny").training, QWEN_4B, GIVEN)
    assert sum(cost.parameters.values()) == sum(p.numel() for p in DSparkModel(drafter).parameters())
    assert cost.active == sum(cost.parameters.values())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_an_estimate(name: str) -> None:
    config = find_recipe(name).training
    cost = estimate(config, QWEN_4B, GIVEN)
    assert cost.tokens == config.sequences_per_step * 500 * config.optim.steps
    assert cost.epochs == pytest.approx(
        config.sequences_per_step * config.optim.steps / (1000 - config.validation_sequences)
    )
    assert cost.seconds == pytest.approx(sum(cost.operations.values()) / 5e13)


def test_what_makes_it_cheaper() -> None:
    config = find_recipe("shipped").training
    base = estimate(config, QWEN_4B, GIVEN)
    sharded = estimate(replace(config, parallel=Parallel.FSDP2), QWEN_4B, replace(GIVEN, processes=4))
    states = "weights, gradients, moments (float32)"
    assert sharded.memory[states] == base.memory[states] / 4
    assert sharded.seconds == pytest.approx(base.seconds / 4)
    assert estimate(config, QWEN_4B, replace(GIVEN, online=False)).operations["target"] == 0
    smaller = estimate(replace(config, micro_batches=4), QWEN_4B, GIVEN)
    assert smaller.memory["activations"] == pytest.approx(base.memory["activations"] / 4)
    experts = replace(config.drafter, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64)
    mixed = estimate(replace(config, drafter=experts), QWEN_4B, GIVEN)
    assert mixed.active < sum(mixed.parameters.values())


def test_sizes_are_read_without_weights(target_dir: Path, loaded: LoadedTarget, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((target_dir / "config.json").read_bytes())
    facts, sizes = read_sizes(str(tmp_path))
    assert sizes.parameters == loaded.target.facts.num_parameters
    assert (facts.hidden_size, facts.num_layers) == (32, 3)


def test_report(target_dir: Path, tmp_path: Path) -> None:
    data = tmp_path / "c.jsonl"
    conversation = Conversation(ids=[1] * 20, mask=[0] * 10 + [1] * 10, domain="", temperature=0.0, complete=True)
    append_conversations(data, [conversation] * 10)
    report = estimate_recipe("tiny", ["optim.steps=8"], str(target_dir), data=[data], flops=1e9)
    text = report.to_text()
    assert "8 steps of 2 sequences (2.0 times the data)" in text
    assert "20 tokens a sequence, 50% of them answers" in text
    assert "features of the data, if stored (bf16)" in text
    with pytest.raises(InputError, match="flops > 0"):
        estimate_recipe("tiny", [], str(target_dir), flops=0.0)
