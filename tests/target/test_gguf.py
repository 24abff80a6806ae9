"""GGUF files are converted once, atomically, and load like any directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from transformers import PreTrainedTokenizerBase

import dspark.target.gguf as conversion
from dspark.core import InputError
from dspark.target import load_target
from dspark.target.gguf import check_sha256, converted_directory
from dspark.target.sources import GGUFFile

from .families import SIZES

KV_WIDTH = SIZES["hidden_size"] // SIZES["num_attention_heads"] * SIZES["num_key_value_heads"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    return path


def write_gguf(path: Path) -> None:
    """A tiny random Llama in the GGUF layout, with a byte-pair tokenizer."""
    rng = np.random.default_rng(0)
    writer = GGUFWriter(str(path), "llama")
    layers, width, inner, vocab = 2, SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["vocab_size"]
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*"w0123456789", *(f"w{i}" for i in range(vocab - 11))])
    writer.add_token_types([1] * vocab)
    writer.add_token_merges(["w 1"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes = {"token_embd": (vocab, width), "output_norm": (width,)}
    for i in range(layers):
        shapes |= {f"blk.{i}.{name}": (width,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{i}.{name}": (width, width) for name in ("attn_q", "attn_output")}
        shapes |= {f"blk.{i}.{name}": (KV_WIDTH, width) for name in ("attn_k", "attn_v")}
        shapes |= {f"blk.{i}.{name}": (inner, width) for name in ("ffn_gate", "ffn_up")}
        shapes[f"blk.{i}.ffn_down"] = (width, inner)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def leftovers(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.name.startswith(".")]


def test_converts_once_and_says_so(gguf: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_target(str(gguf), dtype="float32", device="cpu")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Converting tiny.gguf once into ")
    assert captured.err.count("\n") == 1
    assert loaded.name == "tiny"
    assert loaded.target.facts.num_layers == 2
    assert loaded.target.facts.eos_token_ids == {2}
    again = load_target(str(gguf), dtype="float32", device="cpu")
    assert capsys.readouterr().err == ""
    torch.testing.assert_close(again.target.embed_weight(), loaded.target.embed_weight(), atol=0, rtol=0)
    assert leftovers(cache) == []


def test_a_changed_file_is_converted_anew(gguf: Path, cache: Path) -> None:
    first = converted_directory(GGUFFile(path=gguf))
    with gguf.open("ab") as stream:
        stream.write(b"\0" * 32)
    assert converted_directory(GGUFFile(path=gguf)) != first


def test_a_damaged_file_is_refused_before_it_is_read(gguf: Path, cache: Path) -> None:
    with pytest.raises(InputError, match=r"has sha256 .*, expected 00"):
        converted_directory(GGUFFile(path=gguf, sha256="00"))
    with pytest.raises(InputError, match="sha256"):
        check_sha256(gguf, "ff")


def test_a_file_with_only_the_right_beginning(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 20)
    with pytest.raises(InputError, match="cannot read"):
        load_target(str(path))
    assert leftovers(cache) == []


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_leaves_nothing(
    gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    save = conversion.save_file

    def fails(tensors: dict, path: Path, **options: object) -> None:
        Path(path).write_bytes(b"half")
        raise failure

    monkeypatch.setattr(conversion, "save_file", fails)
    expected = InputError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="No space left on device.*DSPARK_CACHE" if expected is InputError else None):
        converted_directory(GGUFFile(path=gguf))
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert leftovers(cache) == []
    monkeypatch.setattr(conversion, "save_file", save)
    assert (converted_directory(GGUFFile(path=gguf)) / "model.safetensors").is_file()


def test_a_disk_that_is_full_before_the_tokenizer(gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: object, folder: object, **options: object) -> None:
        raise Exception("No space left on device (os error 28)")

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", fails)
    with pytest.raises(InputError, match=r"No space left on device.*DSPARK_CACHE"):
        converted_directory(GGUFFile(path=gguf))
    assert leftovers(cache) == []


def test_a_cache_that_cannot_be_written(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="cannot write to the cache folder"):
        converted_directory(GGUFFile(path=gguf))


def test_a_conversion_that_another_process_overtakes_uses_its_result(
    gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, finals = conversion._publish, []

    def overtaken(folder: Path, final: Path) -> None:
        monkeypatch.setattr(conversion, "_publish", publish)
        finals.append(converted_directory(GGUFFile(path=gguf)))
        (final / "made by the faster one").touch()
        publish(folder, final)

    monkeypatch.setattr(conversion, "_publish", overtaken)
    finals.append(converted_directory(GGUFFile(path=gguf)))
    assert finals[0] == finals[1]
    assert (finals[0] / "made by the faster one").is_file()
    assert leftovers(cache) == []
