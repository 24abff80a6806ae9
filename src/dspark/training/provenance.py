"""Where a checkpoint comes from: versions, configuration, data. No paths, no names of machines or people."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dspark.core import InputError
from dspark.core.whole_file import write_whole
from dspark.training.config import TrainConfig
from dspark.training.source import FeatureSource

PROVENANCE_FILE = "provenance.json"
_PACKAGES = ("dspark", "torch", "transformers", "numpy", "safetensors")


def describe_run(config: TrainConfig, source: FeatureSource, *, started_from: str | None) -> dict[str, Any]:
    """What is known of a run before its first step.

    Args:
        config: the run.
        source: its data.
        started_from: SHA-256 of the weights it took over; None for fresh ones.
    """
    corpus = source.corpus
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "commit": _commit(),
        "config": config.to_json(),
        "data": {
            "sha256": corpus.fingerprint(),
            "sequences": corpus.sequences,
            "tokens": corpus.tokens,
            "answer_tokens": int(corpus.mask.sum()),
            "target": source.spec.target,
        },
        "seed": config.seed,
        "started_from": started_from,
    }


def write_provenance(folder: Path, run: dict[str, Any], outcome: dict[str, Any]) -> None:
    """Write the file beside a checkpoint, whole or not at all.

    Args:
        folder: of the checkpoint.
        run: of ``describe_run``.
        outcome: step, processes and acceptance of this checkpoint.

    Raises:
        InputError: it cannot be written.
    """
    file = folder / PROVENANCE_FILE
    try:
        write_whole(file, json.dumps({**run, "checkpoint": outcome}, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from error


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree this code runs from, ``+`` behind it if files were changed; None outside of one."""
    git, source = shutil.which("git"), Path(__file__).parent
    if git is None or "site-packages" in source.parts:
        return None
    commit = _said(git, "rev-parse", "HEAD", at=source)
    changed = commit is not None and _said(git, "status", "--porcelain", "--untracked-files=no", at=source)
    return f"{commit}+" if changed else commit


def _said(git: str, *words: str, at: Path) -> str | None:
    try:
        done = subprocess.run([git, "-C", str(at), *words], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
