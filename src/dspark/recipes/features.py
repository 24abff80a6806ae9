"""A feature store from files of conversations: announced with its size, written shard by shard, continued, verified."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec
from dspark.data.feature_store import (
    SHARD_BYTES,
    FeatureCoding,
    FeatureStoreWriter,
    StoreManifest,
    begun,
    read_manifest,
    shard_bytes,
    shard_tokens,
    verify_store,
)
from dspark.data.grouping import consecutive_groups
from dspark.target import LoadedTarget
from dspark.training.capture import check_corpus
from dspark.training.config import DrafterConfig
from dspark.training.features import write_features

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True)
class StorePlan:
    """How features are stored.

    Attributes:
        coding: ``bf16``, or ``fp8`` at half the size; see :class:`FeatureCoding` for what that costs.
        shard_mb: size of a shard in MB; so much memory is also needed while writing, and lost by an interruption.
    """

    coding: FeatureCoding = FeatureCoding.BF16
    shard_mb: float = SHARD_BYTES / 1e6

    def __post_init__(self) -> None:
        if not 0 < self.shard_mb < float("inf"):
            raise InputError(f"a shard must have a size in MB above 0, got {self.shard_mb}")

    @classmethod
    def named(cls, coding: str, shard_mb: float) -> StorePlan:
        """A plan from a user's words.

        Raises:
            InputError: no such coding, or no size.
        """
        if coding not in list(FeatureCoding):
            raise InputError(f"features are stored as {' or '.join(FeatureCoding)}, got {coding!r}")
        return cls(coding=FeatureCoding(coding), shard_mb=shard_mb)


@dataclass(frozen=True, kw_only=True)
class NewStore:
    """A store that is to be written, or written on.

    Attributes:
        corpus: the conversations.
        folder: where the store goes.
        manifest: as far as it is there already.
        shard_sizes: bytes of each of its shards, finished or not.
    """

    corpus: Corpus
    folder: Path
    manifest: StoreManifest
    shard_sizes: tuple[int, ...]

    @classmethod
    def plan(
        cls, files: Sequence[Path], folder: Path, drafter: DrafterConfig, target: str, how: StorePlan | None = None
    ) -> NewStore:
        """Read the conversations and see whether their features fit; nothing is written.

        Args:
            files: files of conversations.
            folder: where the store goes, or where it was begun.
            drafter: who will learn from it; its taps are stored.
            target: name of the target.
            how: how features are stored.

        Raises:
            InputError: a bad file, no conversations, something in the way, or not enough space.
        """
        how = how or StorePlan()
        if not folder.parent.is_dir():
            raise InputError(f"there is no folder {folder.parent} to put {folder.name} into")
        if not files:
            raise InputError("give files of conversations, or --verify for a store that is there")
        corpus = Corpus.read(files)
        if not corpus.sequences:
            raise InputError("there are no conversations in these files; synthesise some first")
        spec = FeatureSpec(target=target, hidden_size=drafter.hidden_size, tap_layers=drafter.target_layer_ids)
        wanted = StoreManifest(
            target=spec.target,
            hidden_size=spec.hidden_size,
            tap_layers=spec.tap_layers,
            coding=how.coding,
            shard_tokens=shard_tokens(spec, how.coding, int(how.shard_mb * 1e6)),
            corpus=corpus.fingerprint(),
        )
        made = cls(
            corpus=corpus,
            folder=folder,
            manifest=begun(folder, wanted),
            shard_sizes=tuple(_shard_sizes(corpus, wanted)),
        )
        free = shutil.disk_usage(folder.parent).free
        if free < made.missing:
            raise InputError(f"{made.announcement}, but only {free / 1e6:,.0f} MB are free; nothing was written")
        return made

    @property
    def size(self) -> int:
        """Bytes of all its shards."""
        return sum(self.shard_sizes)

    @property
    def missing(self) -> int:
        """Bytes that are still to be written."""
        return sum(self.shard_sizes[len(self.manifest.shards) :])

    @property
    def announcement(self) -> str:
        """Its size in words."""
        shards, done = len(self.shard_sizes), len(self.manifest.shards)
        said = (
            f"features of {self.corpus.tokens} tokens take {self.size / 1e6:,.1f} MB as {self.manifest.coding} "
            f"({self.size / self.corpus.tokens / 1e3:.1f} kB a token) in {shards} shard{'s' * (shards > 1)}"
        )
        return f"{said}; {done} of them are done, {self.missing / 1e6:,.1f} MB are to be written" if done else said

    def write(self, loaded: LoadedTarget, drafter: DrafterConfig, *, progress: Callable[[int, str], None]) -> None:
        """Run the target; what an interrupted or failed attempt has finished, the next one builds on.

        Raises:
            InputError: the target is not of the drafter's size, cannot run the conversations, or the disk is full.
            KeyboardInterrupt: after Ctrl-C; says how far the store is.
        """
        facts = loaded.target.facts
        if (facts.hidden_size, facts.num_layers) != (drafter.hidden_size, drafter.num_target_layers):
            raise InputError(
                f"the recipe's drafter is for a target of {drafter.num_target_layers} layers and width "
                f"{drafter.hidden_size}, {loaded.name} has {facts.num_layers} and {facts.hidden_size}"
            )
        check_corpus(self.corpus, facts)
        writer = FeatureStoreWriter(
            self.folder,
            target=self.manifest.target,
            hidden_size=self.manifest.hidden_size,
            tap_layers=self.manifest.tap_layers,
            coding=self.manifest.coding,
            tokens_per_shard=self.manifest.shard_tokens,
            corpus=self.manifest.corpus,
        )
        try:
            write_features(loaded.target, self.corpus, writer, progress=_Counter(progress).add)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; {self._how_far(writer)}") from None
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise InputError(f"the disk of {self.folder} is full; {self._how_far(writer)}") from error

    def _how_far(self, writer: FeatureStoreWriter) -> str:
        done = len(writer.manifest.shards)
        return f"{done} of {len(self.shard_sizes)} shards are finished and stay, the same command goes on behind them"


def verify_words(folder: Path, progress: Callable[[int, str], None] = lambda done, note: None) -> str:
    """Compare a finished store with its checksums; returns a sentence about it.

    Args:
        folder: the store.
        progress: gets the number of bytes read.

    Raises:
        InputError: see :func:`verify_store`.
    """
    manifest = verify_store(folder, _Counter(progress).add)
    return f"{folder} is whole: {manifest.tokens} tokens in {len(manifest.shards)} shards, every checksum is right"


def stored_bytes(folder: Path) -> int:
    """Bytes of a finished store's shards.

    Raises:
        InputError: no finished store.
    """
    return sum(shard.bytes for shard in read_manifest(folder).shards)


class _Counter:
    """Adds up increments for a bar."""

    def __init__(self, progress: Callable[[int, str], None]) -> None:
        self._progress, self._done = progress, 0

    def add(self, more: int) -> None:
        self._done += more
        self._progress(self._done, "")


def _shard_sizes(corpus: Corpus, wanted: StoreManifest) -> list[int]:
    """Bytes of every shard that the corpus makes."""
    return [
        shard_bytes(corpus.select(np.arange(start, stop)), wanted.spec, wanted.coding)
        for start, stop in consecutive_groups(corpus.lengths, wanted.shard_tokens)
    ]
