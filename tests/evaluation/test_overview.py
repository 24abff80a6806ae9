"""Facts about machine and models, and tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from dspark import LLM
from dspark.drafters.dspark import load_checkpoint
from dspark.evaluation import overview
from dspark.evaluation.tables import markdown_table
from dspark.target import LoadedTarget


def test_model_facts(loaded: LoadedTarget, target_dir: Path, drafter_dir: Path) -> None:
    llm = LLM(loaded, drafter=drafter_dir, max_requests=1)
    facts = overview.model_facts(llm)
    model = AutoModelForCausalLM.from_pretrained(target_dir)
    assert facts["target"]["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert facts["target"]["tapped_layers"] == (0, 1)
    weights = load_checkpoint(drafter_dir).model.parameters()
    assert facts["drafter"]["parameters"] == sum(parameter.numel() for parameter in weights)
    assert facts["drafter"]["weights_bytes"] == 4 * facts["drafter"]["parameters"]  # type: ignore[operator]
    assert facts["memory"]["target_token_bytes"] == 3 * 2 * 2 * 8 * 4  # layers, k and v, heads, size, bytes
    assert facts["memory"]["drafter_token_bytes"] == 1 * 2 * 4 * 8 * 4
    assert facts["memory"]["pool_bytes"] == facts["memory"]["tokens"] * (384 + 256)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "fact", "shown"),
    [
        ("pool_bytes", 1234, ("pool size", "1.2 KB")),
        ("pool_bytes", 999, ("pool size", "999 B")),
        ("pool_bytes", 250_000_000, ("pool size", "250 MB")),
        ("kv_heads", 1234, ("kv heads", "1,234")),
        ("bound", True, ("bound", "yes")),
        ("taps", (1, 2), ("taps", "1, 2")),
        ("taps", (), ("taps", "none")),
        ("memory_bytes", None, ("memory bytes", "none")),
        ("name", "x", ("name", "x")),
    ],
)
def test_facts_for_people(name: str, fact: overview.Fact, shown: tuple[str, str]) -> None:
    assert overview.readable(name, fact) == shown


def test_tables_align_numbers_right() -> None:
    table = markdown_table(("arm", "speed"), [("plain", "9.5"), ("x", "123.0"), ("y", "")])
    assert table.splitlines() == [
        "| arm   | speed |",
        "|-------|------:|",
        "| plain |   9.5 |",
        "| x     | 123.0 |",
        "| y     |       |",
    ]
