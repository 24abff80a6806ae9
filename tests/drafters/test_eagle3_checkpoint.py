"""Eagle3 checkpoints: strict accounting, the vocabulary maps, and which loader a path goes to."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dspark.drafters import DSparkDrafter, Eagle3Drafter, load_drafter
from dspark.drafters.dspark import DSparkCheckpoint
from dspark.drafters.dspark import save_checkpoint as save_dspark
from dspark.drafters.eagle3 import Eagle3Checkpoint, Eagle3Config, load_checkpoint, save_checkpoint

from .eagle3_standin import GOLDEN, TextUser, config_of, random_model, text_of
from .standin import StandInTarget, golden_target, random_target
from .standin import config_of as dspark_config
from .standin import random_model as dspark_model
from .stored import check_absent_and_damaged_files, check_full_disk, edit_config, edit_tensors, refused

IDS = torch.arange(0, 60, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "drafter", Eagle3Checkpoint(model=random_model(config_of())), dtype=torch.float32)
    return tmp_path / "drafter"


@pytest.fixture
def reduced(tmp_path: Path) -> Path:
    model = random_model(config_of(draft_vocab_size=len(IDS)))
    save_checkpoint(tmp_path / "reduced", Eagle3Checkpoint(model=model, draft_to_target=IDS), dtype=torch.float32)
    return tmp_path / "reduced"


def refusal(folder: Path, target: StandInTarget | None = None) -> str:
    found = target or random_target(config_of().layer_shape)
    return refused(lambda place: load_drafter(place, found), folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_round_trip(tmp_path: Path, dtype: torch.dtype) -> None:
    model = random_model(config_of(rope_theta=5e5, step_loss_decay=0.9))
    save_checkpoint(tmp_path, Eagle3Checkpoint(model=model), dtype=dtype)
    stored = load_checkpoint(tmp_path)
    assert stored.config == model.config
    assert stored.embed is stored.lm_head is stored.draft_to_target is None
    assert stored.model.state_dict().keys() == model.state_dict().keys()
    for name, ours in model.state_dict().items():
        assert torch.equal(stored.model.state_dict()[name], ours.to(dtype))


def test_layout_is_that_of_the_reference(tmp_path: Path) -> None:
    """A golden checkpoint, read and written: the same keys and tensors; every field of ours is one of the reference."""
    stored = load_checkpoint(GOLDEN / "eagle3")
    save_checkpoint(tmp_path, stored, dtype=torch.float32)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path, GOLDEN / "eagle3"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    written, reference = (json.loads((f / "config.json").read_text()) for f in (tmp_path, GOLDEN / "eagle3"))
    assert written.keys() - reference.keys() == {"rope_theta"}
    assert all(written[key] == reference[key] for key in written.keys() & reference.keys())


def test_reduced_vocabulary_maps(reduced: Path) -> None:
    """Both maps of the convention are written; the one from the target's side may be absent."""
    tensors = load_file(reduced / "model.safetensors")
    assert torch.equal(tensors["d2t"] + torch.arange(len(IDS)), IDS)
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], IDS)
    assert torch.equal(load_checkpoint(reduced).draft_to_target, IDS)
    edit_tensors(reduced, lambda t: t.pop("t2d"))
    edit_tensors(reduced, lambda t: t.update(d2t=t["d2t"].int()))
    assert torch.equal(load_checkpoint(reduced).draft_to_target, IDS)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.pop("d2t"), "missing key 'd2t'"),
        (lambda t: t.update(d2t=t["d2t"].float()), "d2t has dtype torch.float32, expected int64 offsets"),
        (lambda t: t["d2t"].__setitem__(0, 61), "d2t must map each draft token to a different id"),
        (lambda t: t["d2t"].__setitem__(0, 3), "d2t must map"),
        (lambda t: t["d2t"].__setitem__(0, -1), "d2t must map"),
        (lambda t: t["t2d"].logical_not_(), "t2d marks 41 target ids that are not the 20 ids of d2t"),
        (lambda t: t.update(t2d=t["t2d"].long()), "t2d has dtype"),
        (lambda t: t.update(t2d=t["t2d"][:-1].clone()), "t2d has shape"),
    ],
)
def test_maps_that_lie(reduced: Path, change: Callable[[dict[str, Tensor]], Any], named: str) -> None:
    edit_tensors(reduced, change)
    assert named in refusal(reduced)


@pytest.mark.pitfall(33)
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            lambda t: t.update({"layers.1.mlp.up_proj.weight": torch.ones(2)}),
            "unknown key 'layers.1.mlp.up_proj.weight'",
        ),
        (lambda t: t.update(d2t=torch.zeros(61, dtype=torch.int64)), "unknown key 'd2t'"),
        (lambda t: t.pop("fc.weight"), "missing key 'fc.weight'"),
        (lambda t: t.update({"fc.weight": t["fc.weight"][:, :-1].clone()}), "fc.weight has shape [32, 63]"),
        (lambda t: t["fc.weight"].view(-1).__setitem__(3, float("nan")), "fc.weight holds numbers that are not finite"),
        (lambda t: t.update({"norm.weight": t["norm.weight"].long()}), "norm.weight has dtype torch.int64"),
        (lambda t: t.update({f"model.{key}": t.pop(key) for key in list(t)}), "prefix 'model.'"),
        (
            lambda t: t.update({"midlayer.hidden_norm.weight": t.pop("layers.0.hidden_norm.weight")}),
            "unknown key 'midl",
        ),
    ],
)
def test_keys_are_accounted_for(folder: Path, change: Callable[[dict[str, Tensor]], Any], named: str) -> None:
    edit_tensors(folder, change)
    assert named in refusal(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "LlamaForCausalLMEagle3"),
        ({"architectures": ["Qwen3Eagle3Model", "x"]}, "Qwen3Eagle3Model"),
        ({"num_hidden_layers": 2}, "num_hidden_layers must be 1"),
        ({"draft_num_hidden_layers": 3}, "draft_num_hidden_layers must be 1"),
        ({"use_sliding_window": True, "sliding_window": 8}, "use_sliding_window"),
        ({"block_size": 7}, "'block_size', which belongs to a DSpark checkpoint"),
        ({"eagle_config": {}}, "eagle_config"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"ttt_length": 0}, "ttt_length"),
        ({"ttt_length": True}, "ttt_length"),
        ({"step_loss_decay": "0.8"}, "step_loss_decay"),
        ({"step_loss_decay": float("nan")}, "step_loss_decay"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"num_attention_heads": 3}, "multiple"),
        ({"target_layer_ids": [7]}, "target_layer_ids"),
        ({"draft_vocab_size": 62}, "draft_vocab_size"),
    ],
    ids=str,
)
def test_options_that_would_be_misread(folder: Path, changes: dict[str, Any], named: str) -> None:
    edit_config(folder, **changes)
    assert named in refusal(folder)


@pytest.mark.parametrize("field", ["ttt_length", "step_loss_decay", "hidden_size", "target_layer_ids", "head_dim"])
def test_missing_field(folder: Path, field: str) -> None:
    raw = json.loads((folder / "config.json").read_text())
    del raw[field]
    (folder / "config.json").write_text(json.dumps(raw))
    assert f"lacks the field {field!r}; it is no Eagle3 checkpoint" in refusal(folder)


def test_config_and_weights_of_different_kinds(folder: Path, tmp_path: Path) -> None:
    """Each file is sound, but they do not belong together."""
    save_dspark(tmp_path / "dspark", DSparkCheckpoint(model=dspark_model(dspark_config())), dtype=torch.float32)
    for config, weights in ((folder, tmp_path / "dspark"), (tmp_path / "dspark", folder)):
        mixed = tmp_path / f"mixed-{config.name}"
        mixed.mkdir()
        shutil.copy(config / "config.json", mixed)
        shutil.copy(weights / "model.safetensors", mixed)
        assert re.search("unknown key|expected none", refusal(mixed))


def test_absent_and_damaged_files(folder: Path) -> None:
    check_absent_and_damaged_files(folder, refusal)


def test_failed_save_keeps_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Eagle3Checkpoint(model=random_model(config_of(), seed=5))
    check_full_disk(folder, lambda: save_checkpoint(folder, other), monkeypatch)


def test_config_survives_its_own_dictionary() -> None:
    config = config_of(draft_vocab_size=10, rope_theta=5e5, ttt_length=3, step_loss_decay=1.0)
    assert Eagle3Config.from_dict(config.to_dict()) == config


def test_the_architecture_decides_who_loads(folder: Path) -> None:
    target = random_target(config_of().layer_shape)
    assert isinstance(load_drafter(folder, target), Eagle3Drafter)
    assert isinstance(load_drafter(GOLDEN / "eagle3", golden_target(GOLDEN)), Eagle3Drafter)
    assert isinstance(load_drafter(GOLDEN / "dspark" / "dflash", golden_target(GOLDEN)), DSparkDrafter)
    edit_config(folder, architectures=["LlamaModel"])
    assert "Qwen3DSparkModel" in refusal(folder)


@pytest.mark.pitfall(34)
@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"hidden_size": 48}, "hidden size 32 (target: 48)"),
        ({"vocab_size": 64}, "vocabulary 61 (target: 64)"),
        ({"num_layers": 12}, "number of target layers 8 (target: 12)"),
    ],
)
def test_drafter_of_another_target(folder: Path, facts: dict[str, int], named: str) -> None:
    assert named in refusal(folder, random_target(config_of().layer_shape, **facts))


def first_logits(folder: Path, target: StandInTarget) -> Tensor:
    user = TextUser(load_drafter(folder, target))
    user.commit_text("a", *text_of(config_of(), 6))
    return user.drafted("a", 5, 6).logits[0][0]


def saved(folder: Path, **parts: Any) -> Path:
    save_checkpoint(folder, Eagle3Checkpoint(model=random_model(config_of()), **parts), dtype=torch.float32)
    return folder


def test_own_matrices_are_kept_when_they_differ(tmp_path: Path) -> None:
    """A stored matrix wins over the target's, scaled and capped as the target's family does."""
    facts = {"logit_softcap": 3.0}
    own, other = (
        dataclasses.replace(random_target(config_of().layer_shape, **facts), scale=scale) for scale in (5.5, 5.5)
    )
    without, stored = saved(tmp_path / "without"), saved(tmp_path / "with", embed=own.embedding, lm_head=own.head)
    expected = first_logits(without, own)
    torch.testing.assert_close(first_logits(stored, other), expected, atol=1e-4, rtol=0)
    assert not torch.allclose(first_logits(without, other), expected, atol=1e-2)
    assert load_drafter(stored, own)._embed == own.embed, "equal matrices are held once"
