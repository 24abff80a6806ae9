"""Wherever a drafter's path is taken, an Eagle3 checkpoint may stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dspark import LLM, SamplingParams
from dspark.drafters.eagle3 import Eagle3Checkpoint, Eagle3Config, Eagle3Model, save_checkpoint

from .conftest import Dspark, one_line


@pytest.fixture(scope="module")
def eagle_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Eagle3 drafter with a reduced vocabulary for the tiny target."""
    config = Eagle3Config(
        hidden_size=32,
        intermediate_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=264,
        target_layer_ids=(0, 1),
        num_target_layers=3,
        ttt_length=4,
        draft_vocab_size=100,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny") / "tiny-eagle3"
    checkpoint = Eagle3Checkpoint(model=Eagle3Model(config), draft_to_target=torch.arange(100) + 50)
    save_checkpoint(folder, checkpoint, dtype=torch.float32)
    return folder


def test_python(target_dir: Path, eagle_dir: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=12)
    plain = LLM(str(target_dir), drafter="none", dtype="float32").generate("hello", params)[0].outputs[0]
    llm = LLM(str(target_dir), drafter=eagle_dir, dtype="float32")
    assert llm.drafter.name == "eagle3"
    fast = llm.generate("hello", params)[0].outputs[0]
    assert fast.token_ids == plain.token_ids
    assert fast.stats.drafted > 0


def test_generate(on_target: Dspark, eagle_dir: Path) -> None:
    words = ("generate", "hello", "--raw", "--max-tokens", 12, "--temperature", 0, "--drafter")
    plain, fast = (on_target(*words, drafter) for drafter in ("none", eagle_dir))
    assert fast.exit_code == 0
    assert fast.stdout == plain.stdout


def test_info(on_target: Dspark, eagle_dir: Path) -> None:
    result = on_target("info", "--drafter", eagle_dir, "--json")
    facts = json.loads(result.stdout)["drafter"]
    assert (facts["kind"], facts["block_size"], facts["vocabulary"], facts["layers"]) == ("eagle3", 4, 100, 1)
    stored = Eagle3Model(Eagle3Config.from_dict(json.loads((eagle_dir / "config.json").read_text())))
    assert facts["parameters"] == sum(weight.numel() for weight in stored.parameters())


@pytest.mark.pitfall(31)
def test_a_threshold_needs_confidence(on_target: Dspark, eagle_dir: Path) -> None:
    result = on_target("generate", "hello", "--drafter", eagle_dir, "--policy", "threshold:0.5")
    assert result.exit_code != 0
    assert "eagle3" in one_line(result)


def test_a_damaged_checkpoint_is_one_line(on_target: Dspark, eagle_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((eagle_dir / "config.json").read_text())
    result = on_target("generate", "hello", "--drafter", tmp_path)
    assert result.exit_code != 0
    assert "lacks model.safetensors" in one_line(result)
