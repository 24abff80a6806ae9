"""Writing small files so that each is there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from dspark.core import InputError


def check_folder(folder: Path | None) -> None:
    """See before a long run whether its report can be written.

    Raises:
        InputError: the folder is a file.
    """
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder, {folder} is a file")


def write_whole(path: Path, text: str) -> None:
    """Write or replace a file; a failed or interrupted attempt changes nothing and leaves nothing behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
