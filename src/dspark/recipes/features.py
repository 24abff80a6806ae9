"""A new feature store: announced with its size, written aside, and put in its place when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark.core import InputError
from dspark.data.conversation import Conversation, read_conversations
from dspark.data.feature_store import store_bytes
from dspark.drafters.dspark import DSparkConfig
from dspark.target import LoadedTarget
from dspark.training.features import write_features


@dataclass(frozen=True, kw_only=True)
class NewStore:
    """A store that is to be written.

    Attributes:
        files: files of conversations.
        folder: where the store goes.
        drafter: who will learn from it; its taps are stored.
        tokens: how many there are.
    """

    files: tuple[Path, ...]
    folder: Path
    drafter: DSparkConfig
    tokens: int

    @classmethod
    def plan(cls, files: Sequence[Path], folder: Path, drafter: DSparkConfig) -> NewStore:
        """Read the conversations and see whether their features fit.

        Raises:
            InputError: a bad file, no conversations, something in the way, or not enough space.
        """
        for file in files:
            if not file.is_file():
                raise InputError(f"there is no file {file}; expected conversations, one JSON object a line")
        if folder.exists():
            raise InputError(f"{folder} exists; a feature store is written to a new folder")
        if not folder.parent.is_dir():
            raise InputError(f"there is no folder {folder.parent} to put {folder.name} into")
        tokens = sum(len(conversation.ids) for conversation in _conversations(files))
        if not tokens:
            raise InputError("there are no conversations in these files; synthesise some first")
        made = cls(files=tuple(files), folder=folder, drafter=drafter, tokens=tokens)
        free = shutil.disk_usage(folder.parent).free
        if free < made.size:
            raise InputError(f"{made.announcement}, but only {free / 1e6:,.0f} MB are free")
        return made

    @property
    def size(self) -> int:
        """Bytes it will take."""
        return store_bytes(self.tokens, self.drafter.hidden_size, len(self.drafter.target_layer_ids))

    @property
    def announcement(self) -> str:
        """Its size in words."""
        return f"features of {self.tokens} tokens take {self.size / 1e6:,.1f} MB"

    def write(self, loaded: LoadedTarget, *, progress: Callable[[int, str], None]) -> None:
        """Run the target; an interrupted or failed attempt leaves nothing behind.

        Raises:
            InputError: the target is not of the drafter's size.
        """
        facts = loaded.target.facts
        if (facts.hidden_size, facts.num_layers) != (self.drafter.hidden_size, self.drafter.num_target_layers):
            raise InputError(
                f"the recipe's drafter is for a target of {self.drafter.num_target_layers} layers and width "
                f"{self.drafter.hidden_size}, {loaded.name} has {facts.num_layers} and {facts.hidden_size}"
            )
        aside = self.folder.with_name(f".{self.folder.name}.{os.getpid()}")
        done = _Counter(progress)
        try:
            write_features(
                loaded.target,
                loaded.name,
                _conversations(self.files),
                aside,
                tap_layers=self.drafter.target_layer_ids,
                progress=done.add,
            )
            aside.rename(self.folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


class _Counter:
    """Adds up increments for a bar."""

    def __init__(self, progress: Callable[[int, str], None]) -> None:
        self._progress, self._done = progress, 0

    def add(self, more: int) -> None:
        self._done += more
        self._progress(self._done, "")


def _conversations(files: Sequence[Path]) -> Iterator[Conversation]:
    for file in files:
        yield from read_conversations(file)
