"""Named arrays in one file, in the layout of safetensors, written piece by piece and read through a memory map.

The layout: eight bytes with the length of the header, a JSON header, the arrays without gaps. The library that the
layout comes from wants whole arrays in memory; here they may come in pieces, and errors of the disk keep their number.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from dspark.core import InputError

_NAMES = {
    torch.int64: "I64",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.bool: "BOOL",
}
_RAW = {"I64": np.int64, "I32": np.int32, "F32": np.float32, "BF16": np.uint16, "F8_E4M3": np.uint8, "BOOL": np.bool_}
_ALIGNMENT = 8
_READ_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Column:
    """One array of a file.

    Attributes:
        dtype: its type.
        shape: its shape.
        pieces: its rows in order, in as many pieces as there are.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Iterable[Tensor] = ()

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


def file_bytes(columns: Mapping[str, Column], notes: Mapping[str, str]) -> int:
    """Size of the file, known without any of the pieces."""
    return len(_header(columns, notes)) + sum(column.nbytes for column in columns.values())


def write_columns(path: Path, columns: Mapping[str, Column], notes: Mapping[str, str]) -> str:
    """Write a file as a whole or not at all; larger item sizes should come first, for alignment.

    Returns:
        SHA-256 of the file, hexadecimal.

    Raises:
        OSError: the disk does not take it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            digest = hashlib.sha256()
            _put(file, digest, _header(columns, notes))
            for column in columns.values():
                for piece in column.pieces:
                    _put(file, digest, piece.contiguous().view(-1).view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return digest.hexdigest()


def map_columns(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Map a file: its arrays (bfloat16 as uint16, float8 as uint8; they stay on disk) and its notes.

    Raises:
        InputError: it is no such file.
    """
    try:
        raw = np.memmap(path, np.uint8, mode="r")
        begin = 8 + int(raw[:8].view("<u8")[0])
        header = json.loads(bytes(raw[8:begin]))
        notes: dict[str, str] = header.pop("__metadata__", {})
        return {name: _column(raw[begin:], entry) for name, entry in header.items()}, notes
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as wrong:  # whatever foreign bytes lead to
        raise InputError(f"{path} is damaged or no part of a feature store; write the store again") from wrong


def sha256(path: Path) -> str:
    """Checksum of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _header(columns: Mapping[str, Column], notes: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(notes)}
    begin = 0
    for name, column in columns.items():
        end = begin + column.nbytes
        entries[name] = {"dtype": _NAMES[column.dtype], "shape": list(column.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _put(file: BinaryIO, digest: Any, block: bytes | memoryview) -> None:
    digest.update(block)
    file.write(block)


def _column(data: np.ndarray, entry: Mapping[str, Any]) -> np.ndarray:
    begin, end = entry["data_offsets"]
    return np.asarray(data[begin:end]).view(_RAW[entry["dtype"]]).reshape(entry["shape"])
