"""The log of a run: one JSON object a line, and event files for TensorBoard where wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dspark.core import InputError
from dspark.core.whole_file import write_whole

LOG_FILE = "log.jsonl"


class RunLog:
    """Appends entries; entries of steps that a resumed run takes again are dropped first."""

    def __init__(self, folder: Path, *, finished_steps: int, tensorboard: bool) -> None:
        """Open the log of a run.

        Raises:
            InputError: TensorBoard is wanted but not installed, or the log cannot be written.
        """
        self._path = folder / LOG_FILE
        self._events = _event_writer(folder, finished_steps) if tensorboard else None
        kept = [line for line in _lines(self._path) if _step(line) <= finished_steps]
        try:
            write_whole(self._path, "".join(kept))
        except OSError as error:
            raise InputError(f"{self._path} cannot be written: {error.strerror}") from error

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append one entry; it has a ``step``.

        Raises:
            InputError: no space.
        """
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise InputError(f"{self._path} cannot be written: {error.strerror}") from error
        if self._events is not None:
            for name, value in _numbers(entry):
                self._events.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Finish the event file."""
        if self._events is not None:
            self._events.close()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All entries of a run's log."""
    return [json.loads(line) for line in _lines(folder / LOG_FILE)]


def _lines(path: Path) -> list[str]:
    """Whole lines; a last one cut off by a kill is left out."""
    if not path.is_file():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("}\n")]


def _step(line: str) -> int:
    return int(json.loads(line)["step"])


def _numbers(entry: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Names and values of all numbers in an entry."""
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (list, tuple)):
            yield from _numbers({f"{place + 1:02d}": item for place, item in enumerate(value)}, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and name != "step":
            yield prefix + name, value


def _event_writer(folder: Path, finished_steps: int) -> Any:
    if find_spec("tensorboard") is None:
        raise InputError("tensorboard=true needs the package tensorboard (pip install 'dspark[train]')")
    return import_module("torch.utils.tensorboard").SummaryWriter(
        str(folder / "tensorboard"), purge_step=finished_steps
    )
