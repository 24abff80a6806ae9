"""The small file beside a file of conversations that says how it came to be and how far it can be trusted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dspark.core import InputError


def record_path(path: Path) -> Path:
    """Where the record of a file of conversations is."""
    return path.with_name(f"{path.stem}.record.json")


def read_record(path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Read a record.

    Raises:
        InputError: it is none, or lacks one of the names.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        missing = set(names) - set(record)
    except (ValueError, TypeError):
        missing = {"everything"}
    if missing:
        raise InputError(f"{path} is no record of conversations; choose another name")
    return dict(record)


def recorded_target(path: Path) -> str | None:
    """Name of the target that wrote a file of conversations, or whose tokens it holds; None where nothing tells.

    Raises:
        InputError: the record beside the file is none.
    """
    place = record_path(path)
    return read_record(place, ["target"])["target"] if place.is_file() else None
