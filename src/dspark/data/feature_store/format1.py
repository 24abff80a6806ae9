"""Stores of format 1: one flat file per array, no shards, no checksums. They can be read but not written any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.data.feature_store.coding import FeatureCoding
from dspark.data.feature_store.manifest import MANIFEST, Shard, StoreManifest
from dspark.data.feature_store.shard import ShardView, check_size

VERSION = 1


def parse(raw: dict[str, Any], folder: Path) -> StoreManifest:
    """The manifest of such a store, as if all of it were one shard.

    Raises:
        InputError: fields that do not make sense.
    """
    try:
        whole = Shard(file="", bytes=0, sha256="", tokens=int(raw["tokens"]), sequences=int(raw["sequences"]))
        return StoreManifest(
            target=str(raw["target"]),
            hidden_size=int(raw["hidden_size"]),
            tap_layers=tuple(int(layer) for layer in raw["tap_layers"]),
            coding=FeatureCoding.BF16,
            shard_tokens=whole.tokens,
            corpus="",
            complete=True,
            shards=(whole,),
            format_version=VERSION,
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise InputError(f"{folder / MANIFEST} is damaged: {wrong}; write the store again") from None


def open_view(folder: Path, manifest: StoreManifest) -> ShardView:
    """Map such a store.

    Raises:
        InputError: a file is missing or of the wrong size.
    """
    spec, tokens = manifest.spec, manifest.tokens
    lengths, temperatures = (_load(folder / f"{name}.npy", manifest) for name in ("lengths", "temperatures"))
    if lengths.sum() != tokens:
        raise InputError(f"{folder / 'lengths.npy'} does not add up to {tokens} tokens; write the store again")
    return ShardView(
        corpus=Corpus(
            ids=np.array(_map(folder / "ids.i32", np.int32, (tokens,))),
            mask=np.array(_map(folder / "mask.i8", np.int8, (tokens,))).astype(bool),
            lengths=lengths,
            temperatures=temperatures,
            complete=np.ones(len(lengths), bool),
            domains=("",) * len(lengths),
        ),
        log_z=np.array(_map(folder / "log_z.f32", np.float32, (tokens,))),
        hidden=_map(folder / "hidden.bf16", np.uint16, (tokens, spec.hidden_size)),
        features=_map(folder / "features.bf16", np.uint16, (tokens, spec.width)),
        scale=None,
    )


def _map(path: Path, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """Map a flat file, checking its size."""
    check_size(path, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=shape))


def _load(path: Path, manifest: StoreManifest) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path)
    except (OSError, ValueError, EOFError) as wrong:
        raise InputError(f"{path} is missing or damaged; write the store again") from wrong
    if values.shape != (manifest.sequences,):
        raise InputError(f"{path} must hold {manifest.sequences} entries; write the store again")
    return values
