"""One shard of a feature store: consecutive sequences with all that the target computed for them.

Legend: t tokens and n sequences of the shard, D hidden size, W = m * D numbers per row of features.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec
from dspark.data.feature_store.array_file import Column, file_bytes, map_columns
from dspark.data.feature_store.coding import FeatureCoding
from dspark.data.feature_store.manifest import Shard


@dataclass(frozen=True, kw_only=True)
class ShardView:
    """A shard on disk; the large arrays are memory maps.

    Attributes:
        corpus: its sequences, in memory.
        log_z: [t] float32.
        hidden: [t, D] bfloat16 as uint16.
        features: [t, W] bfloat16 as uint16, or float8 as uint8.
        scale: [W] float32 of float8 features, else None.
    """

    corpus: Corpus
    log_z: np.ndarray
    hidden: np.ndarray
    features: np.ndarray
    scale: Tensor | None


@dataclass(frozen=True, kw_only=True)
class TargetRows:
    """What the target computed for a shard's tokens, piece by piece; nothing at all where only the size is asked for.

    Attributes:
        features: pieces [., W] as they are stored.
        hidden: pieces [., D] bfloat16.
        log_z: pieces [.] float32.
        scale: [W] float32 of float8 features.
    """

    features: Iterable[Tensor] = ()
    hidden: Iterable[Tensor] = ()
    log_z: Iterable[Tensor] = ()
    scale: Tensor | None = None


def shard_name(index: int) -> str:
    """File name of the shard with this index."""
    return f"shard-{index:06d}.safetensors"


def shard_columns(
    corpus: Corpus, spec: FeatureSpec, coding: FeatureCoding, rows: TargetRows
) -> tuple[dict[str, Column], dict[str, str]]:
    """The arrays of a shard's file, larger items first, and its notes."""
    names = sorted(set(corpus.domains))
    domains = np.array([names.index(domain) for domain in corpus.domains], np.int32)
    tokens = corpus.tokens
    columns = {
        "lengths": _whole(corpus.lengths),
        "temperatures": _whole(corpus.temperatures),
        "domains": _whole(domains),
        "ids": _whole(corpus.ids),
        "log_z": Column(dtype=torch.float32, shape=(tokens,), pieces=rows.log_z),
    }
    if coding is FeatureCoding.FP8:
        pieces = () if rows.scale is None else (rows.scale,)
        columns["scale"] = Column(dtype=torch.float32, shape=(spec.width,), pieces=pieces)
    columns |= {
        "hidden": Column(dtype=torch.bfloat16, shape=(tokens, spec.hidden_size), pieces=rows.hidden),
        "complete": _whole(corpus.complete),
        "mask": _whole(corpus.mask),
        "features": Column(dtype=coding.dtype, shape=(tokens, spec.width), pieces=rows.features),
    }
    larger_first = sorted(columns.items(), key=lambda column: -column[1].dtype.itemsize)
    return dict(larger_first), {"domains": json.dumps(names)}


def shard_bytes(corpus: Corpus, spec: FeatureSpec, coding: FeatureCoding) -> int:
    """Size of the file that a shard of these sequences makes."""
    return file_bytes(*shard_columns(corpus, spec, coding, TargetRows()))


def token_bytes(spec: FeatureSpec, coding: FeatureCoding) -> int:
    """Bytes that each token adds to a store."""
    return spec.width * coding.dtype.itemsize + spec.hidden_size * 2 + 4 + 4 + 1


def check_size(path: Path, expected: int) -> None:
    """See that a file of a store is there and whole, at the cost of one look at its size in bytes.

    Raises:
        InputError: it is not.
    """
    got = path.stat().st_size if path.is_file() else None
    if got != expected:
        said = "is missing" if got is None else f"has {got} bytes, expected {expected}: it was cut or changed"
        raise InputError(f"{path} {said}; write the store again")


def open_shard(folder: Path, shard: Shard, spec: FeatureSpec) -> ShardView:
    """Map a shard.

    Raises:
        InputError: the file is missing, of another size, or does not hold what the manifest says.
    """
    path = folder / shard.file
    check_size(path, shard.bytes)
    arrays, notes = map_columns(path)
    try:
        names = json.loads(notes["domains"])
        corpus = Corpus(
            ids=np.array(arrays["ids"]),
            mask=np.array(arrays["mask"]),
            lengths=np.array(arrays["lengths"]),
            temperatures=np.array(arrays["temperatures"]),
            complete=np.array(arrays["complete"]),
            domains=tuple(names[code] for code in arrays["domains"]),
        )
        scale = torch.from_numpy(np.array(arrays["scale"])) if "scale" in arrays else None
        view = ShardView(
            corpus=corpus,
            log_z=np.array(arrays["log_z"]),
            hidden=arrays["hidden"],
            features=arrays["features"],
            scale=scale,
        )
    except (KeyError, IndexError, ValueError, AssertionError) as wrong:
        raise InputError(f"{path} does not hold a shard of features; write the store again") from wrong
    got = (corpus.tokens, corpus.sequences, view.hidden.shape, view.features.shape)
    expected = (shard.tokens, shard.sequences, (shard.tokens, spec.hidden_size), (shard.tokens, spec.width))
    if got != expected:
        raise InputError(f"{path} holds arrays of other sizes than the manifest says; write the store again")
    return view


def _whole(array: np.ndarray) -> Column:
    values = torch.from_numpy(np.ascontiguousarray(array))
    return Column(dtype=values.dtype, shape=tuple(values.shape), pieces=(values,))
