"""Target features of conversations on disk: written once by appending, read through memory maps.

A store is a folder: ``manifest.json`` plus flat arrays over all tokens of all sequences, and per-sequence arrays.
Legend: T tokens, Q sequences, m tapped layers, D hidden size of the target.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark.core import InputError

FORMAT_VERSION = 1
_BF16_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """What a store holds.

    Attributes:
        target: name of the target the features come from.
        hidden_size: D.
        tap_layers: tapped layers, in the order in which they are concatenated.
        tokens, sequences: T and Q.
        format_version: of the folder's layout.
    """

    target: str
    hidden_size: int
    tap_layers: tuple[int, ...]
    tokens: int
    sequences: int
    format_version: int = FORMAT_VERSION


def store_bytes(tokens: int, hidden_size: int, taps: int) -> int:
    """Size in bytes that a store of ``tokens`` tokens takes."""
    return tokens * ((taps + 1) * hidden_size * _BF16_BYTES + 4 + 4 + 1)


class FeatureStoreWriter:
    """Appends sequences to a new store; nothing is readable as a store until ``close`` writes the manifest."""

    def __init__(self, folder: Path, *, target: str, hidden_size: int, tap_layers: tuple[int, ...]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.target, self.hidden_size, self.tap_layers = folder, target, hidden_size, tap_layers
        names = ("features.bf16", "hidden.bf16", "log_z.f32", "ids.i32", "mask.i8")
        self._files = {name: (folder / name).open("wb") for name in names}
        self._lengths: list[int] = []
        self._temperatures: list[float] = []

    def append(
        self, ids: list[int], mask: list[int], temperature: float, features: Tensor, hidden: Tensor, log_z: Tensor
    ) -> None:
        """Add one sequence: ids and loss mask of length t, features [t, m*D], last hidden [t, D], log_z [t]."""
        rows = len(ids)
        assert features.shape == (rows, len(self.tap_layers) * self.hidden_size)
        self._files["features.bf16"].write(_bf16_bytes(features))
        self._files["hidden.bf16"].write(_bf16_bytes(hidden))
        self._files["log_z.f32"].write(log_z.float().contiguous().numpy().tobytes())
        self._files["ids.i32"].write(np.asarray(ids, np.int32).tobytes())
        self._files["mask.i8"].write(np.asarray(mask, np.int8).tobytes())
        self._lengths.append(rows)
        self._temperatures.append(temperature)

    def close(self) -> None:
        """Finish the store."""
        for file in self._files.values():
            file.close()
        np.save(self.folder / "lengths.npy", np.asarray(self._lengths, np.int64))
        np.save(self.folder / "temperatures.npy", np.asarray(self._temperatures, np.float32))
        manifest = StoreManifest(
            target=self.target,
            hidden_size=self.hidden_size,
            tap_layers=self.tap_layers,
            tokens=sum(self._lengths),
            sequences=len(self._lengths),
        )
        (self.folder / "manifest.json").write_text(json.dumps(asdict(manifest), indent=1) + "\n")


class FeatureStore:
    """Read access to one or more stores as if they were one; large arrays stay on disk until rows are taken."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Open stores.

        Raises:
            InputError: no finished store there, another format version, a file of the wrong size, or stores of
                different targets or taps.
        """
        manifests = [_read_manifest(folder) for folder in folders]
        self.manifest = _joined(manifests)
        d = self.manifest.hidden_size
        width = len(self.manifest.tap_layers) * d
        sizes = [manifest.tokens for manifest in manifests]
        parts = list(zip(folders, sizes, strict=True))
        self._features = [_map(folder / "features.bf16", np.int16, (size, width)) for folder, size in parts]
        self._hidden = [_map(folder / "hidden.bf16", np.int16, (size, d)) for folder, size in parts]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self.log_z = torch.from_numpy(_joined_array(parts, "log_z.f32", np.float32))
        self.ids = torch.from_numpy(_joined_array(parts, "ids.i32", np.int32)).long()
        self.mask = torch.from_numpy(_joined_array(parts, "mask.i8", np.int8)).bool()
        self.lengths = np.concatenate([np.load(folder / "lengths.npy") for folder in folders])
        self.temperatures = np.concatenate([np.load(folder / "temperatures.npy") for folder in folders])
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])

    def features(self, rows: np.ndarray) -> Tensor:
        """Features of flat token rows [n] -> [n, m * D] bfloat16."""
        return self._take(self._features, rows)

    def hidden(self, rows: np.ndarray) -> Tensor:
        """Last hidden states of flat token rows [n] -> [n, D] bfloat16."""
        return self._take(self._hidden, rows)

    def _take(self, parts: list[np.ndarray], rows: np.ndarray) -> Tensor:
        """Gather flat rows across the parts."""
        taken = np.empty((len(rows), parts[0].shape[1]), np.int16)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for index in np.unique(owner):
            here = owner == index
            taken[here] = parts[index][rows[here] - self._starts[index]]
        return torch.from_numpy(taken).view(torch.bfloat16)


def _bf16_bytes(values: Tensor) -> bytes:
    return values.to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()


def _map(path: Path, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """Map a flat file, checking its size."""
    expected = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not path.is_file() or path.stat().st_size != expected:
        got = path.stat().st_size if path.is_file() else "no file"
        raise InputError(f"feature store file {path} must have {expected} bytes, got {got}; write the store again")
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


def _read_manifest(folder: Path) -> StoreManifest:
    path = folder / "manifest.json"
    if not path.is_file():
        raise InputError(f"no finished feature store in {folder} (manifest.json is missing); write the store again")
    raw: Mapping = json.loads(path.read_text())
    if raw.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"feature store format must be {FORMAT_VERSION}, got {raw.get('format_version')}; write it again"
        )
    return StoreManifest(**{**raw, "tap_layers": tuple(raw["tap_layers"])})


def _joined(manifests: list[StoreManifest]) -> StoreManifest:
    """One manifest for all, if they fit together."""
    kinds = {(manifest.target, manifest.hidden_size, manifest.tap_layers) for manifest in manifests}
    if len(kinds) != 1:
        raise InputError(f"feature stores must share target, hidden size and taps, got {sorted(kinds)}")
    tokens, sequences = sum(m.tokens for m in manifests), sum(m.sequences for m in manifests)
    return replace(manifests[0], tokens=tokens, sequences=sequences)


def _joined_array(parts: list[tuple[Path, int]], name: str, dtype: type) -> np.ndarray:
    return np.concatenate([_map(folder / name, dtype, (size,)) for folder, size in parts])
