"""The one way in which feature stores are written: shard by shard, each there as a whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor

from dspark.core import InputError
from dspark.data.conversation import Conversation
from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec
from dspark.data.feature_store.array_file import write_columns
from dspark.data.feature_store.coding import FeatureCoding, dimension_scale, encode
from dspark.data.feature_store.manifest import MANIFEST, Shard, StoreManifest, parse, read_raw
from dspark.data.feature_store.shard import TargetRows, shard_columns, shard_name, token_bytes
from dspark.data.grouping import overflows

SHARD_BYTES = 256_000_000
"""Size of a shard unless another is asked for; so much is also held in memory until a shard is written."""


def shard_tokens(spec: FeatureSpec, coding: FeatureCoding, shard_bytes: int = SHARD_BYTES) -> int:
    """How many tokens a shard of about so many bytes holds, at least one."""
    return max(1, shard_bytes // token_bytes(spec, coding))


class FeatureStoreWriter:
    """Appends sequences to a store that is new, or goes on with one that was left unfinished.

    Sequences gather in memory until the next one would make the shard too large; then the shard is written. A store is
    unfinished until :meth:`close`. With the same sequences, an interrupted and continued store is the same byte by byte
    as one written in one go.
    """

    def __init__(
        self,
        folder: Path,
        *,
        target: str,
        hidden_size: int,
        tap_layers: tuple[int, ...],
        coding: FeatureCoding = FeatureCoding.BF16,
        tokens_per_shard: int | None = None,
        corpus: str = "",
    ) -> None:
        """Begin a store, or find out how far it is.

        Args:
            folder: where it goes; made if it does not exist.
            target: name of the target.
            hidden_size: D.
            tap_layers: tapped layers.
            coding: type of the features.
            tokens_per_shard: tokens of a shard, None for about 256 MB.
            corpus: fingerprint of the sequences that will be appended; an unfinished store of others is refused.

        Raises:
            InputError: the folder holds something else, a finished store, or the beginning of another one.
        """
        self.folder = folder
        self.spec = FeatureSpec(target=target, hidden_size=hidden_size, tap_layers=tap_layers)
        self.manifest = begun(
            folder,
            StoreManifest(
                target=target,
                hidden_size=hidden_size,
                tap_layers=tap_layers,
                coding=coding,
                shard_tokens=tokens_per_shard or shard_tokens(self.spec, coding),
                corpus=corpus,
            ),
        )
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".shard-*"):
            leftover.unlink()
        self.manifest.save(folder)
        self._tokens = 0
        self._held: list[Conversation] = []
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []

    @property
    def finished(self) -> int:
        """How many sequences are in finished shards; append the one with this index next."""
        return self.manifest.sequences

    def append(
        self,
        ids: list[int],
        mask: list[int],
        temperature: float,
        features: Tensor,
        hidden: Tensor,
        log_z: Tensor,
        *,
        domain: str = "",
        complete: bool = True,
    ) -> None:
        """Add one sequence: ids and loss mask of length t, features [t, m * D], last hidden [t, D], log_z [t].

        Raises:
            InputError: a number that is not finite.
            OSError: the disk does not take the shard that is full now.
        """
        rows = len(ids)
        assert features.shape == (rows, self.spec.width)
        assert hidden.shape == (rows, self.spec.hidden_size)
        if overflows(self._tokens, rows, self.manifest.shard_tokens):
            self.cut()
        if not (features.isfinite().all() and hidden.isfinite().all() and log_z.isfinite().all()):
            raise InputError(
                f"the target gives numbers that are not finite in sequence {self.finished + len(self._held) + 1}; "
                "try the target in float32 or bfloat16"
            )
        self._held.append(Conversation(ids=ids, mask=mask, domain=domain, temperature=temperature, complete=complete))
        self._tokens += rows
        # copies, as a conversion that has nothing to do keeps a view, and with it the forward it is a part of
        kept = (features.to(torch.bfloat16, copy=True), hidden.to(torch.bfloat16, copy=True))
        self._rows.append((*kept, log_z.to(torch.float32, copy=True)))

    def cut(self) -> None:
        """Write what is held as a shard of its own, if there is anything.

        Raises:
            OSError: the disk does not take it; the shards before it stay.
        """
        if not self._held:
            return
        corpus = Corpus.of(self._held)
        features, hidden, log_z = zip(*self._rows, strict=True)
        scale = dimension_scale(features) if self.manifest.coding is FeatureCoding.FP8 else None
        stored = (encode(piece, scale) for piece in features)
        rows = TargetRows(features=stored, hidden=hidden, log_z=log_z, scale=scale)
        name = shard_name(len(self.manifest.shards))
        digest = write_columns(self.folder / name, *shard_columns(corpus, self.spec, self.manifest.coding, rows))
        shard = Shard(
            file=name,
            bytes=(self.folder / name).stat().st_size,
            sha256=digest,
            tokens=corpus.tokens,
            sequences=corpus.sequences,
        )
        self._update(replace(self.manifest, shards=(*self.manifest.shards, shard)))
        self._tokens, self._held, self._rows = 0, [], []

    def close(self) -> None:
        """Write the last shard and declare the store finished."""
        self.cut()
        self._update(replace(self.manifest, complete=True))

    def _update(self, manifest: StoreManifest) -> None:
        manifest.save(self.folder)
        self.manifest = manifest


def begun(folder: Path, wanted: StoreManifest) -> StoreManifest:
    """The wanted store as far as the folder holds it already; shards behind a damaged one do not count.

    Raises:
        InputError: the folder holds something else, a finished store, or the beginning of another one.
    """
    if not folder.exists():
        return wanted
    if not folder.is_dir() or not (folder / MANIFEST).exists():
        if not folder.is_dir() or any(folder.iterdir()):
            raise InputError(f"{folder} exists and is no feature store; choose a new folder")
        return wanted
    found = parse(read_raw(folder), folder)
    if found.complete:
        raise InputError(f"{folder} exists and holds a finished feature store; choose a new folder")
    if found.empty() != wanted.empty():
        raise InputError(
            f"{folder} holds the beginning of another store ({_difference(found, wanted)}); remove it first"
        )
    whole = takewhile(lambda shard: _is_whole(folder, shard), found.shards)
    return replace(found, shards=tuple(whole))


def _is_whole(folder: Path, shard: Shard) -> bool:
    path = folder / shard.file
    return path.is_file() and path.stat().st_size == shard.bytes


def _difference(found: StoreManifest, wanted: StoreManifest) -> str:
    """Which fields differ, in words."""
    parts = []
    for name in ("target", "hidden_size", "tap_layers", "coding", "shard_tokens"):
        got, asked = getattr(found, name), getattr(wanted, name)
        if got != asked:
            parts.append(f"its {name} is {got}, asked for is {asked}")
    return "; ".join(parts) or "its conversations are others"
