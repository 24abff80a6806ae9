"""The store on disk: what goes in comes out, in shards that notice damage and foreign hands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dspark.core import InputError
from dspark.data.feature_store import FeatureCoding, FeatureStore, FeatureStoreWriter, read_manifest, verify_store
from dspark.data.feature_store.coding import decode, dimension_scale, encode

D, TAPS = 6, (0, 2, 3)
LENGTHS = (4, 3, 5, 11, 2, 2)


def rows_of(length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features as badly conditioned as real ones, last hidden states, denominators."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(length, len(TAPS) * D, generator=generator)
    features[:, 1] *= 3000.0
    features[0, 4] = 1000.0
    features[:, 5] *= 1e-3
    features[:, 7] = 0.0
    return features, torch.randn(length, D, generator=generator), torch.randn(length, generator=generator)


def begin(folder: Path, *, corpus: str = "", coding: FeatureCoding = FeatureCoding.BF16) -> FeatureStoreWriter:
    return FeatureStoreWriter(
        folder, target="tiny", hidden_size=D, tap_layers=TAPS, coding=coding, tokens_per_shard=8, corpus=corpus
    )


def fill(writer: FeatureStoreWriter, upto: int = len(LENGTHS)) -> None:
    for index in range(writer.finished, upto):
        length = LENGTHS[index]
        ids = [10 * index + place for place in range(length)]
        mask = [place % 2 for place in range(length)]
        domain = ("chat", "math")[index % 2]
        writer.append(ids, mask, index / 4, *rows_of(length, index), domain=domain, complete=index != 3)


def write(folder: Path, coding: FeatureCoding = FeatureCoding.BF16) -> Path:
    writer = begin(folder, coding=coding)
    fill(writer)
    writer.close()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def expected() -> tuple[Tensor, Tensor, Tensor]:
    parts = [rows_of(length, index) for index, length in enumerate(LENGTHS)]
    features, hidden, log_z = (torch.cat(part) for part in zip(*parts, strict=True))
    return features, hidden, log_z


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    store = FeatureStore([write(tmp_path / "s")])
    features, hidden, log_z = expected()
    total = sum(LENGTHS)
    assert (store.manifest.tokens, store.manifest.sequences, len(store.manifest.shards)) == (total, 6, 4)
    assert store.spec.width == 18
    some = np.array([26, 0, 3, 8, 7, 20, 0])
    assert torch.equal(store.features(some), features[some].bfloat16())
    assert torch.equal(store.hidden(some), hidden[some].bfloat16())
    assert torch.equal(store.features(np.arange(2, 5)), features[2:5].bfloat16())
    assert torch.equal(store.log_z, log_z)
    corpus = store.corpus
    assert corpus.lengths.tolist() == list(LENGTHS)
    assert corpus.ids_of(4).tolist() == [40, 41]
    assert corpus.mask_of(2).tolist() == [False, True, False, True, False]
    assert corpus.complete.tolist() == [True, True, True, False, True, True]
    assert corpus.domains == ("chat", "math") * 3
    assert corpus.temperatures == pytest.approx(np.arange(6) / 4)


def test_shards_are_files_that_others_read(tmp_path: Path) -> None:
    for coding in FeatureCoding:
        read = load_file(write(tmp_path / coding, coding) / "shard-000000.safetensors")
        assert read["features"].dtype == coding.dtype
        assert torch.equal(read["ids"], torch.tensor([0, 1, 2, 3, 10, 11, 12], dtype=torch.int32))
        assert torch.equal(read["hidden"], expected()[1][:7].bfloat16())


def test_eight_bits_keep_what_they_promise(tmp_path: Path) -> None:
    """Off by at most 1/16 of a number, or 2^-17 of the largest of its dimension; last hidden states are untouched."""
    store = FeatureStore([write(tmp_path / "s", FeatureCoding.FP8)])
    features, hidden, _ = expected()
    rows = np.arange(sum(LENGTHS))
    got = store.features(rows)
    assert got.dtype == torch.bfloat16
    values = features.bfloat16().float()
    first = 0
    for view in store._views:
        part = slice(first, first + view.corpus.tokens)
        first = part.stop
        limit = torch.maximum(values[part].abs() / 16, values[part].abs().amax(0) * 2.0**-17)
        assert (got[part].float() - values[part]).abs().le(limit).all()
        assert view.scale is not None
        assert torch.equal(torch.frexp(view.scale)[0], torch.full_like(view.scale, 0.5)), "scales are powers of two"
    assert got.isfinite().all()
    assert torch.equal(store.hidden(rows), hidden.bfloat16())
    relative = (got.float() - values).norm(dim=0) / values.norm(dim=0).clamp(min=1e-9)
    assert relative.max() < 0.04


def test_one_scale_for_all_would_lose_small_dimensions() -> None:
    features = expected()[0]
    scale = dimension_scale([features])
    shared = torch.full_like(scale, float(scale.max()))
    small = features[:, 5]
    own, together = (decode(encode(features, s).view(torch.uint8).numpy(), s).float()[:, 5] for s in (scale, shared))
    assert (own - small).norm() / small.norm() < 0.04
    assert (together - small).norm() / small.norm() > 0.5


def test_the_largest_number_of_a_dimension_stays_finite() -> None:
    for largest in (448.0, 448.0 * 2**9, 1e-30, 3.3e38, 65504.0, 447.9999):
        values = torch.tensor([[largest], [-largest]]).bfloat16()
        scale = dimension_scale([values])
        assert encode(values, scale).float().isfinite().all()


@pytest.mark.parametrize("coding", list(FeatureCoding))
@pytest.mark.parametrize("stopped_at", range(len(LENGTHS) + 1))
def test_a_continued_store_is_byte_identical(tmp_path: Path, coding: FeatureCoding, stopped_at: int) -> None:
    whole = write(tmp_path / "whole", coding)
    fill(begin(tmp_path / "s", coding=coding), stopped_at)  # and is never closed, like a killed process
    (tmp_path / "s" / ".shard-000001.safetensors.4711").write_bytes(b"half")
    with pytest.raises(InputError, match=r"unfinished \(\d shards are done\)"):
        FeatureStore([tmp_path / "s"])
    again = begin(tmp_path / "s", coding=coding)
    assert again.finished <= stopped_at
    fill(again)
    again.close()
    assert contents(tmp_path / "s") == contents(whole)


def test_a_finished_shard_that_was_cut_is_written_again(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole")
    fill(begin(tmp_path / "s"))
    shard = tmp_path / "s" / "shard-000001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    again = begin(tmp_path / "s")
    assert again.finished == 2
    fill(again)
    again.close()
    assert contents(tmp_path / "s") == contents(whole)


def test_only_the_same_store_is_continued(tmp_path: Path) -> None:
    begin(tmp_path / "s", corpus="a")
    with pytest.raises(InputError, match="its conversations are others"):
        begin(tmp_path / "s", corpus="b")
    with pytest.raises(InputError, match="its coding is bf16, asked for is fp8"):
        begin(tmp_path / "s", corpus="a", coding=FeatureCoding.FP8)
    with pytest.raises(InputError, match="finished feature store"):
        begin(write(tmp_path / "t"))
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "photo").touch()
    with pytest.raises(InputError, match="is no feature store"):
        begin(tmp_path / "u")
    with pytest.raises(InputError, match="is no feature store"):
        begin(tmp_path / "u" / "photo")


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    writer = begin(tmp_path / "s")
    features, hidden, log_z = rows_of(3, 0)
    features[1, 1] = float("inf")
    with pytest.raises(InputError, match="not finite in sequence 1"):
        writer.append([1, 2, 3], [0, 1, 1], 0.0, features, hidden, log_z)


def test_several_stores_are_one(tmp_path: Path) -> None:
    stores = [write(tmp_path / "a"), write(tmp_path / "b", FeatureCoding.FP8)]
    both = FeatureStore(stores)
    total = sum(LENGTHS)
    assert (both.manifest.tokens, both.corpus.sequences) == (2 * total, 12)
    rows = np.array([3, total + 3, 2 * total - 1])
    parts = [FeatureStore([store]) for store in stores]
    split = [parts[0].features(rows[:1]), parts[1].features(rows[1:] - total)]
    assert torch.equal(both.features(rows), torch.cat(split))
    other = FeatureStoreWriter(tmp_path / "c", target="other", hidden_size=D, tap_layers=TAPS)
    fill(other)
    other.close()
    with pytest.raises(InputError, match="must share target"):
        FeatureStore([stores[0], tmp_path / "c"])


def test_damage_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "s")
    assert verify_store(folder).complete
    shard, manifest = folder / "shard-000002.safetensors", folder / "manifest.json"
    good, listed = shard.read_bytes(), manifest.read_text()
    shard.write_bytes(good[:-5])
    with pytest.raises(InputError, match=r"shard-000002\.safetensors has \d+ bytes, expected \d+"):
        FeatureStore([folder])
    shard.write_bytes(bytes([*good[:-5], *(255 - byte for byte in good[-5:])]))
    FeatureStore([folder])  # sizes are right; a look at every byte is asked for
    with pytest.raises(InputError, match=r"shard-000002\.safetensors is damaged: its checksum"):
        verify_store(folder)
    for junk in (
        b"\xff" * len(good),
        b"\0" * len(good),
        good[:8] + b"[]" + good[10:],
        good[:8] + b" " * (len(good) - 8),
    ):
        shard.write_bytes(junk)
        with pytest.raises(InputError, match=r"shard-000002\.safetensors (is damaged|does not hold)"):
            FeatureStore([folder])
    shard.write_bytes((folder / "shard-000000.safetensors").read_bytes())
    raw = json.loads(listed)
    raw["shards"][2]["bytes"] = shard.stat().st_size
    manifest.write_text(json.dumps(raw))
    with pytest.raises(InputError, match="other sizes than the manifest says"):
        FeatureStore([folder])
    shard.unlink()
    with pytest.raises(InputError, match=r"shard-000002\.safetensors is missing"):
        FeatureStore([folder])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"manifest\.json is damaged"),
        ("[]", r"manifest\.json is no manifest"),
        ('{"format_version": 3}', "has format version 3, expected 2"),
        ('{"format_version": 2, "target": "x"}', r"manifest\.json is damaged"),
        ('{"format_version": 1, "target": "x"}', r"manifest\.json is damaged"),
    ],
)
def test_foreign_manifests(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_manifest(tmp_path)


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no finished feature store .*manifest\.json is missing"):
        FeatureStore([tmp_path])
    begin(tmp_path / "s").close()
    with pytest.raises(InputError, match="holds no sequences"):
        FeatureStore([tmp_path / "s"])


def old_store(folder: Path) -> Path:
    """A store of format 1."""
    folder.mkdir()
    features, hidden, log_z = expected()
    total = sum(LENGTHS)
    fields = {"target": "tiny", "hidden_size": D, "tap_layers": TAPS, "tokens": total, "sequences": len(LENGTHS)}
    (folder / "manifest.json").write_text(json.dumps({**fields, "format_version": 1}))
    for name, values in (("features", features), ("hidden", hidden)):
        (folder / f"{name}.bf16").write_bytes(values.bfloat16().view(torch.int16).numpy().tobytes())
    (folder / "log_z.f32").write_bytes(log_z.numpy().tobytes())
    (folder / "ids.i32").write_bytes(np.arange(total, dtype=np.int32).tobytes())
    (folder / "mask.i8").write_bytes(np.ones(total, np.int8).tobytes())
    np.save(folder / "lengths.npy", np.array(LENGTHS, np.int64))
    np.save(folder / "temperatures.npy", np.full(len(LENGTHS), 0.7, np.float32))
    return folder


def test_stores_of_format_1_can_be_read(tmp_path: Path) -> None:
    folder = old_store(tmp_path / "old")
    both = FeatureStore([folder, write(tmp_path / "new")])
    features, hidden, log_z = expected()
    total, rows = sum(LENGTHS), np.array([5, 17])
    assert torch.equal(both.features(rows), features[rows].bfloat16())
    assert torch.equal(both.hidden(rows + total), hidden[rows].bfloat16())
    assert torch.equal(both.log_z[:total], log_z)
    assert both.corpus.ids_of(1).tolist() == [4, 5, 6]
    with pytest.raises(InputError, match="no checksums"):
        verify_store(folder)
    for name in ("hidden.bf16", "lengths.npy", "ids.i32"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(kept[:-1])
        with pytest.raises(InputError, match=name):
            FeatureStore([folder])
        (folder / name).write_bytes(kept)
