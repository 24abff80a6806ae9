"""The file that says what a feature store holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dspark.core import InputError
from dspark.core.whole_file import write_whole
from dspark.data.feature_spec import FeatureSpec
from dspark.data.feature_store.coding import FeatureCoding

FORMAT_VERSION = 2
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One finished file of a store: its name, size in bytes, SHA-256, and what it holds."""

    file: str
    bytes: int
    sha256: str
    tokens: int
    sequences: int


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """What a store holds.

    Attributes:
        target: name of the target the features come from.
        hidden_size: D.
        tap_layers: tapped layers, in the order in which they are concatenated.
        coding: type of the features.
        shard_tokens: tokens that a shard holds at most, unless one sequence alone is longer.
        corpus: fingerprint of the conversations, empty where they were not known beforehand.
        complete: whether all of them are in the store.
        shards: its finished files in order.
        format_version: of the folder's layout.
    """

    target: str
    hidden_size: int
    tap_layers: tuple[int, ...]
    coding: FeatureCoding
    shard_tokens: int
    corpus: str
    complete: bool = False
    shards: tuple[Shard, ...] = ()
    format_version: int = FORMAT_VERSION

    @property
    def tokens(self) -> int:
        """T, over all shards."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def sequences(self) -> int:
        """Q, over all shards."""
        return sum(shard.sequences for shard in self.shards)

    @property
    def spec(self) -> FeatureSpec:
        """What the rows of features are."""
        return FeatureSpec(target=self.target, hidden_size=self.hidden_size, tap_layers=self.tap_layers)

    def empty(self) -> StoreManifest:
        """The same store before its first shard: equal for two runs that write the same."""
        return replace(self, complete=False, shards=())

    def save(self, folder: Path) -> None:
        """Write it as a whole or not at all."""
        write_whole(folder / MANIFEST, json.dumps(asdict(self), indent=1) + "\n")


def read_raw(folder: Path) -> dict[str, Any]:
    """The manifest as JSON, of whatever format version.

    Raises:
        InputError: there is none, or it is no manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"no finished feature store in {folder} ({MANIFEST} is missing); write the store first")
    try:
        raw = json.loads(path.read_bytes())
    except ValueError as wrong:
        raise InputError(f"{path} is damaged: {wrong}; write the store again") from None
    if not isinstance(raw, dict) or "format_version" not in raw:
        raise InputError(f"{path} is no manifest of a feature store")
    return raw


def parse(raw: dict[str, Any], folder: Path) -> StoreManifest:
    """A manifest of the present format.

    Raises:
        InputError: another format, or fields that do not make sense.
    """
    path, version = folder / MANIFEST, raw["format_version"]
    if version != FORMAT_VERSION:
        raise InputError(f"{path} has format version {version}, expected {FORMAT_VERSION}; write the store again")
    try:
        return StoreManifest(
            **{
                **raw,
                "tap_layers": tuple(raw["tap_layers"]),
                "coding": FeatureCoding(raw["coding"]),
                "shards": tuple(Shard(**shard) for shard in raw["shards"]),
            }
        )
    except (TypeError, ValueError, KeyError) as wrong:
        raise InputError(f"{path} is damaged: {wrong}; write the store again") from None
