"""Reports as JSON, and where they go."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dspark.core import InputError


def check_folder(folder: Path | None) -> None:
    """See before a long run whether its report can be written.

    Raises:
        InputError: the folder is a file.
    """
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder, {folder} is a file")


def as_json(content: Mapping[str, Any]) -> str:
    """A report as JSON; numbers that are none become null."""
    return json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Numbers that are none become null, tuples lists."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
