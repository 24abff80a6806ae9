"""Target features of conversations on disk: written once by appending, read through memory maps.

A store is a folder: ``manifest.json`` plus flat arrays over all tokens of all sequences, and per-sequence arrays.
Legend: T tokens, Q sequences, m tapped layers, D hidden size of the target.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
    """Read access to a store; the large arrays stay on disk until rows are taken."""

    def __init__(self, folder: Path) -> None:
        """Open a store.

        Raises:
            InputError: no finished store there, another format version, or a file of the wrong size.
        """
        self.manifest = _read_manifest(folder)
        tokens, d = self.manifest.tokens, self.manifest.hidden_size
        width = len(self.manifest.tap_layers) * d
        self._features = _map(folder / "features.bf16", np.int16, (tokens, width))
        self._hidden = _map(folder / "hidden.bf16", np.int16, (tokens, d))
        self.log_z = torch.from_numpy(np.array(_map(folder / "log_z.f32", np.float32, (tokens,))))
        self.ids = torch.from_numpy(np.array(_map(folder / "ids.i32", np.int32, (tokens,)))).long()
        self.mask = torch.from_numpy(np.array(_map(folder / "mask.i8", np.int8, (tokens,)))).bool()
        self.lengths = np.load(folder / "lengths.npy")
        self.temperatures = np.load(folder / "temperatures.npy")
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])

    def features(self, rows: np.ndarray) -> Tensor:
        """Features of flat token rows [n] -> [n, m * D] bfloat16."""
        return torch.from_numpy(self._features[rows]).view(torch.bfloat16)

    def hidden(self, rows: np.ndarray) -> Tensor:
        """Last hidden states of flat token rows [n] -> [n, D] bfloat16."""
        return torch.from_numpy(self._hidden[rows]).view(torch.bfloat16)


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
