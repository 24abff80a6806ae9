"""Reading feature stores: large arrays stay on disk until rows are taken.

Legend: T tokens of all sequences, m tapped layers, D hidden size of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec
from dspark.data.feature_store import format1
from dspark.data.feature_store.array_file import sha256
from dspark.data.feature_store.coding import decode
from dspark.data.feature_store.manifest import StoreManifest, parse, read_raw
from dspark.data.feature_store.shard import ShardView, check_size, open_shard


class FeatureStore:
    """Read access to one or more stores as if they were one.

    Attributes:
        manifest: of all of them together.
        corpus: their sequences, in memory.
        log_z: [T] float32 log softmax denominators, in memory.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Open stores; every file's size is checked, its contents only by :func:`verify_store`.

        Raises:
            InputError: no store there, an unfinished one, another format version, a file that is missing or of the
                wrong size, or stores of different targets or taps.
        """
        assert folders
        manifests = [read_manifest(folder) for folder in folders]
        self.manifest = _joined(manifests)
        self._views = [
            view for folder, manifest in zip(folders, manifests, strict=True) for view in _views(folder, manifest)
        ]
        if not self._views:
            raise InputError(f"the feature store in {folders[0]} holds no sequences")
        self.corpus = Corpus.joined([view.corpus for view in self._views])
        self.log_z = torch.from_numpy(np.concatenate([view.log_z for view in self._views]))
        self._starts = np.cumsum([0, *(view.corpus.tokens for view in self._views)])

    @property
    def spec(self) -> FeatureSpec:
        """What the rows of features are."""
        return self.manifest.spec

    def features(self, rows: np.ndarray) -> Tensor:
        """Features of flat token rows [n] -> [n, m * D] bfloat16."""
        return self._take(rows, self.spec.width, lambda view, at: decode(view.features[at], view.scale))

    def hidden(self, rows: np.ndarray) -> Tensor:
        """Last hidden states of flat token rows [n] -> [n, D] bfloat16."""
        return self._take(rows, self.spec.hidden_size, lambda view, at: decode(view.hidden[at], None))

    def _take(self, rows: np.ndarray, width: int, read: Callable[[ShardView, np.ndarray], Tensor]) -> Tensor:
        """Gather flat rows across the shards."""
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        owners = np.unique(owner)
        if len(owners) == 1:
            return read(self._views[owners[0]], rows - self._starts[owners[0]])
        taken = torch.empty((len(rows), width), dtype=torch.bfloat16)
        for index in owners:
            here = np.flatnonzero(owner == index)
            taken[torch.from_numpy(here)] = read(self._views[index], rows[here] - self._starts[index])
        return taken


def read_manifest(folder: Path) -> StoreManifest:
    """The manifest of a finished store of any format that can be read.

    Raises:
        InputError: no store, an unfinished one, or another format.
    """
    raw = read_raw(folder)
    if raw["format_version"] == format1.VERSION:
        return format1.parse(raw, folder)
    manifest = parse(raw, folder)
    if not manifest.complete:
        raise InputError(
            f"the feature store in {folder} is unfinished ({len(manifest.shards)} shards are done); "
            "the command that began it goes on where it stopped"
        )
    return manifest


def verify_store(folder: Path, progress: Callable[[int], None] = lambda done: None) -> StoreManifest:
    """Compare every byte of a finished store with its checksums.

    Args:
        folder: the store.
        progress: called with the bytes read since the last call.

    Raises:
        InputError: no store, one without checksums, or a file that is missing or damaged.
    """
    manifest = read_manifest(folder)
    if manifest.format_version == format1.VERSION:
        raise InputError(f"the store in {folder} has format {format1.VERSION}, which has no checksums")
    for shard in manifest.shards:
        path = folder / shard.file
        check_size(path, shard.bytes)
        if sha256(path) != shard.sha256:
            raise InputError(f"{path} is damaged: its checksum is wrong; write the store again")
        progress(shard.bytes)
    return manifest


def _views(folder: Path, manifest: StoreManifest) -> list[ShardView]:
    if manifest.format_version == format1.VERSION:
        return [format1.open_view(folder, manifest)]
    return [open_shard(folder, shard, manifest.spec) for shard in manifest.shards]


def _joined(manifests: list[StoreManifest]) -> StoreManifest:
    """One manifest for all, if they fit together."""
    kinds = {(manifest.target, manifest.hidden_size, manifest.tap_layers) for manifest in manifests}
    if len(kinds) != 1:
        raise InputError(f"feature stores must share target, hidden size and taps, got {sorted(kinds)}")
    return replace(manifests[0], shards=tuple(shard for manifest in manifests for shard in manifest.shards))
