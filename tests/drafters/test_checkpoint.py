"""Strict accounting: what is in a checkpoint is used, what is needed is there, what is foreign is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dspark.drafters.dspark import DSparkCheckpoint, DSparkConfig, HeadType, load_checkpoint, save_checkpoint

from .standin import config_of, random_model
from .stored import check_absent_and_damaged_files, check_full_disk, edit_config, edit_tensors, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "drafter", DSparkCheckpoint(model=random_model(config_of())), dtype=torch.float32)
    return tmp_path / "drafter"


def refusal(folder: Path) -> str:
    return refused(load_checkpoint, folder)


@pytest.mark.parametrize("head", list(HeadType))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_round_trip(tmp_path: Path, head: HeadType, dtype: torch.dtype) -> None:
    rank = 0 if head is HeadType.NONE else 6
    config = config_of(head_type=head, markov_rank=rank, enable_confidence_head=rank > 0, sliding_window=9)
    model = random_model(config)
    save_checkpoint(tmp_path, DSparkCheckpoint(model=model), dtype=dtype)
    stored = load_checkpoint(tmp_path)
    assert stored.config == config
    assert stored.embed is stored.lm_head is stored.draft_to_target is None
    for (name, ours), (other, theirs) in zip(
        model.state_dict().items(), stored.model.state_dict().items(), strict=True
    ):
        assert name == other
        assert theirs.dtype == dtype
        assert torch.equal(ours.to(dtype), theirs)


def test_round_trip_of_the_optional_parts(tmp_path: Path) -> None:
    config = config_of(draft_vocab_size=20)
    ids = torch.randperm(config.vocab_size)[:20]
    embed, head = torch.randn(config.vocab_size, 32), torch.randn(20, 32)
    saved = DSparkCheckpoint(model=random_model(config), embed=embed, lm_head=head, draft_to_target=ids)
    save_checkpoint(tmp_path, saved, dtype=torch.float32)
    stored = load_checkpoint(tmp_path)
    assert torch.equal(stored.embed, embed)
    assert torch.equal(stored.lm_head, head)
    assert torch.equal(stored.draft_to_target, ids)
    offsets = load_file(tmp_path / "model.safetensors")["d2t"]
    assert torch.equal(offsets + torch.arange(20), ids)


def test_golden_file_round_trip(golden: Path, tmp_path: Path) -> None:
    """A reference file read and written again holds the same keys and numbers."""
    source = golden / "dspark" / "rnn"
    save_checkpoint(tmp_path, load_checkpoint(source), dtype=torch.float32)
    before, after = (load_file(f / "model.safetensors") for f in (source, tmp_path))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert load_checkpoint(tmp_path).config == load_checkpoint(source).config


@pytest.mark.pitfall(33)
@pytest.mark.parametrize("prefix", ["model.", "draft.", "drafter.model."])
def test_keys_under_a_prefix(folder: Path, prefix: str) -> None:
    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for key in list(tensors):
            tensors[prefix + key] = tensors.pop(key)

    edit_tensors(folder, rename)
    assert repr(prefix) in refusal(folder)


@pytest.mark.pitfall(33)
def test_some_keys_under_a_prefix(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"model.norm.weight": t.pop("norm.weight")}))
    assert "'model.'" in refusal(folder)


@pytest.mark.pitfall(33)
def test_unknown_and_missing_keys(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"layers.0.self_attn.q_proj.bias": torch.zeros(32)}))
    assert "unknown key 'layers.0.self_attn.q_proj.bias'" in refusal(folder)
    edit_tensors(folder, lambda t: [t.pop(k) for k in ("layers.0.self_attn.q_proj.bias", "hidden_norm.weight")])
    assert "missing key 'hidden_norm.weight'" in refusal(folder)


def test_more_layers_than_the_config_says(folder: Path) -> None:
    edit_config(folder, num_hidden_layers=1, layer_types=["full_attention"])
    assert "unknown key 'layers.1." in refusal(folder)


def test_head_type_and_weights_disagree(folder: Path) -> None:
    edit_config(folder, markov_head_type="gated")
    assert "missing key 'markov_head.gate_proj.bias'" in refusal(folder)


@pytest.mark.pitfall(34)
def test_wrong_shape_names_key_and_both_shapes(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"markov_head.markov_w1.weight": torch.zeros(64, 6)}))
    message = refusal(folder)
    assert "markov_head.markov_w1.weight" in message
    assert "[64, 6]" in message
    assert "[61, 6]" in message


def test_integer_weights(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"norm.weight": torch.ones(32, dtype=torch.int64)}))
    assert "norm.weight has dtype torch.int64" in refusal(folder)


@pytest.mark.pitfall(32)
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dflash_config": {"mask_token_id": 3, "target_layer_ids": [1]}}, "gamma + 1 slots"),
        ({"architectures": ["DFlashDraftModel"]}, "DFlashDraftModel"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "LlamaForCausalLMEagle3"),
        ({"architectures": None}, "None"),
        ({"speculators_model_type": "eagle3"}, "speculators"),
    ],
)
def test_other_slot_conventions(folder: Path, changes: dict[str, Any], named: str) -> None:
    edit_config(folder, **changes)
    message = refusal(folder)
    assert named in message
    assert "Qwen3DSparkModel" in message


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": 5}, "wrong or missing"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"markov_head_type": "lstm"}, "lstm"),
        ({"markov_rank": 0}, "unknown key"),
        ({"mask_token_id": 61}, "mask_token_id"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"num_attention_heads": 3}, "multiple"),
        ({"target_layer_ids": [7]}, "target_layer_ids"),
        ({"target_layer_ids": []}, "target_layer_ids"),
        ({"block_size": 0}, "block_size"),
    ],
)
def test_options_that_would_be_misread(folder: Path, changes: dict[str, Any], named: str) -> None:
    edit_config(folder, **changes)
    assert named in refusal(folder)


def test_missing_field(folder: Path) -> None:
    file = folder / "config.json"
    raw = json.loads(file.read_text())
    del raw["mask_token_id"]
    file.write_text(json.dumps(raw))
    assert "mask_token_id" in refusal(folder)


@pytest.mark.parametrize("offsets", [[0] * 19 + [60], [0, -1] + [0] * 18, [-1] + [0] * 19])
def test_reduced_vocabulary_map_is_checked(tmp_path: Path, offsets: list[int]) -> None:
    """Ids outside the vocabulary, or one id twice."""
    model = random_model(config_of(draft_vocab_size=20))
    save_checkpoint(tmp_path, DSparkCheckpoint(model=model, draft_to_target=torch.arange(20)))
    edit_tensors(tmp_path, lambda t: t.update({"d2t": torch.tensor(offsets)}))
    assert "d2t" in refusal(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_reduced_vocabulary_map_must_be_offsets(tmp_path: Path, dtype: torch.dtype) -> None:
    """Other formats keep a mask of the target's words under a similar name; read as offsets it would draft rubbish."""
    save_checkpoint(
        tmp_path,
        DSparkCheckpoint(model=random_model(config_of(draft_vocab_size=20)), draft_to_target=torch.arange(20)),
    )
    edit_tensors(tmp_path, lambda t: t.update({"d2t": torch.zeros(20, dtype=dtype)}))
    assert f"d2t has dtype {dtype}, expected int64 offsets" in refusal(tmp_path)


def test_reduced_vocabulary_needs_its_map(folder: Path, tmp_path: Path) -> None:
    edit_tensors(folder, lambda t: t.update({"d2t": torch.zeros(61, dtype=torch.int64)}))
    assert "unknown key 'd2t'" in refusal(folder)
    model = random_model(config_of(draft_vocab_size=20))
    save_checkpoint(tmp_path / "r", DSparkCheckpoint(model=model, draft_to_target=torch.arange(20)))
    edit_tensors(tmp_path / "r", lambda t: t.pop("d2t"))
    assert "missing key 'd2t'" in refusal(tmp_path / "r")


def test_absent_and_damaged_files(folder: Path) -> None:
    check_absent_and_damaged_files(folder, refusal)


def test_failed_save_keeps_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = DSparkCheckpoint(model=random_model(config_of(), seed=5))
    check_full_disk(folder, lambda: save_checkpoint(folder, other), monkeypatch)


def test_others_may_read_what_they_may_read_elsewhere(folder: Path) -> None:
    """The weights are as readable as the configuration: a server often runs as another user."""
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]


def test_config_survives_its_own_dictionary() -> None:
    config = config_of(head_type=HeadType.RNN, sliding_window=4, draft_vocab_size=10, rope_theta=5e5)
    assert DSparkConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(folder: Path, number: float) -> None:
    edit_tensors(folder, lambda tensors: tensors["fc.weight"].view(-1).__setitem__(3, number))
    assert "fc.weight holds numbers that are not finite" in refusal(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": True},
        {"num_hidden_layers": 10**30},
        {"block_size": 10**30},
        {"head_dim": 7},
        {"mask_token_id": 1.5},
        {"markov_rank": -1},
        {"markov_rank": float("inf")},
        {"rms_norm_eps": "abc"},
        {"rms_norm_eps": float("nan")},
        {"rope_parameters": {"rope_theta": -1.0}},
        {"use_sliding_window": True, "sliding_window": 0, "layer_types": None},
    ],
    ids=str,
)
def test_sizes_that_make_no_drafter(folder: Path, changes: dict[str, Any]) -> None:
    edit_config(folder, **changes)
    assert next(iter(changes)).removeprefix("use_").split("_")[0] in refusal(folder) or "infinity" in refusal(folder)
