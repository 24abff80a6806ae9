"""Where prompts come from: a JSONL file, or a Hugging Face data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

from dspark.core import InputError
from dspark.data.duplicates import Duplicates, SeenTexts
from dspark.data.prompt_turns import BadPromptError, PromptTurns, read_turns

HUB = "hf:"
"""What a data set's name starts with where a file could be meant too."""


class PromptSource(Protocol):
    """Rows that can be gone through again and again, always in the same order."""

    @property
    def name(self) -> str:
        """Short name."""
        ...

    def identity(self) -> dict[str, Any]:
        """What tells this source from another one."""
        ...

    def rows(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        """Number of each row, from 1, and how to read it (ValueError if it cannot be read)."""
        ...

    def place(self, line: int) -> str:
        """Words for where a row stands."""
        ...


@dataclass(frozen=True)
class PromptFile:
    """A JSONL file; empty lines are passed over.

    Raises:
        InputError: there is no such file.
    """

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}; expected prompts, one JSON object a line")

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    def identity(self) -> dict[str, Any]:
        """Name and contents."""
        with self.path.open("rb") as file:
            return {"file": self.path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}

    def rows(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        """The lines."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, lambda line=line: json.loads(line)  # type: ignore[misc]

    def place(self, line: int) -> str:
        """File and line."""
        return f"{self.path}, line {line}"


@dataclass(frozen=True)
class PromptDataset:
    """A data set of the Hugging Face hub, or a local folder that the library ``datasets`` reads; streamed.

    Raises:
        InputError: the library is missing.
    """

    name: str
    split: str = "train"
    subset: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if find_spec("datasets") is None:
            raise InputError("reading data sets needs the library datasets; run: pip install 'dspark[hub]'")

    def identity(self) -> dict[str, Any]:
        """Name and version."""
        return {"dataset": self.name, "subset": self.subset, "split": self.split, "revision": self.revision}

    def rows(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        """The rows."""
        try:
            found = import_module("datasets").load_dataset(
                self.name, self.subset, split=self.split, revision=self.revision, streaming=True
            )
        except Exception as error:  # the library raises whatever its readers and the network do
            raise self._unreadable(error) from error
        rows = iter(found)
        for number in count(1):
            try:
                row = next(rows)
            except StopIteration:
                return
            except Exception as error:
                raise self._unreadable(error) from error
            yield number, lambda row=row: row  # type: ignore[misc]

    def place(self, line: int) -> str:
        """Data set and row."""
        return f"{self.name}, row {line}"

    def _unreadable(self, error: Exception) -> InputError:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return InputError(f"cannot read the data set {self.name!r}, split {self.split!r}: {said}")


def open_source(spec: str, *, split: str = "train", subset: str | None = None) -> PromptSource:
    """A file, or with ``hf:`` before it the name of a data set.

    Raises:
        InputError: there is no such file, or the library for data sets is missing.
    """
    if spec.startswith(HUB):
        return PromptDataset(spec.removeprefix(HUB), split, subset)
    return PromptFile(Path(spec))


@dataclass(kw_only=True)
class PromptReader:
    """Reads prompts from a source, in order, each first user turn once.

    Attributes:
        source: where they come from.
        duplicates: which prompts are left out because one began like them.
        column: a field that holds a single user turn, instead of the known forms.
        limit: how many rows are looked at; None for all.
        on_bad: what to do with a row that cannot be used, by its number and the reason; None raises.
        left_out: how many duplicates the last pass left out.
    """

    source: PromptSource
    duplicates: Duplicates = Duplicates.EXACT
    column: str | None = None
    limit: int | None = None
    on_bad: Callable[[int, str], None] | None = None
    left_out: int = 0

    def __iter__(self) -> Iterator[PromptTurns]:
        """Read from the beginning.

        Raises:
            InputError: a row that cannot be used (its place is named), or a source that cannot be read.
        """
        seen = SeenTexts(self.duplicates)
        self.left_out = 0
        for line, load in islice(self.source.rows(), self.limit):
            turns = self._read(line, load)
            if turns is None:
                continue
            if seen.add("\n".join((turns.system, *turns.users))) is None:
                yield turns
            else:
                self.left_out += 1

    def count(self) -> int | None:
        """Look through all of a file: how many prompts it has. None for a data set, which is not read ahead.

        Raises:
            InputError: a row that cannot be used, unless ``on_bad`` takes it.
        """
        return sum(1 for _ in self) if isinstance(self.source, PromptFile) else None

    def _read(self, line: int, load: Callable[[], Any]) -> PromptTurns | None:
        try:
            return read_turns(_loaded(load), line, self.column)
        except BadPromptError as bad:
            if self.on_bad is None:
                raise InputError(f"{self.source.place(line)}: {bad}") from None
            self.on_bad(line, str(bad))
            return None


def _loaded(load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (ValueError, RecursionError) as broken:
        raise BadPromptError(f"not JSON ({broken})") from None
