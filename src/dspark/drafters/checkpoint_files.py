"""Drafter checkpoints on disk, whatever the drafter: ``config.json`` and ``model.safetensors``, strictly accounted for.

Every key is used, every key is there, shapes and kinds are equal, all weights are numbers; files appear complete or not
at all. A reduced draft vocabulary is stored the way Eagle3 checkpoints do: ``d2t`` [Vd] int64 holds offsets, target
id = draft id + d2t[draft id].
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dspark.core import InputError

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
EMBED_KEY, LM_HEAD_KEY = "embed_tokens.weight", "lm_head.weight"
MAP_KEY, MEMBER_KEY = "d2t", "t2d"

Shapes = dict[str, tuple[int, ...]]

_STORED_AS = {MAP_KEY: torch.int64, MEMBER_KEY: torch.bool}
_READ_AS = {MAP_KEY: (torch.int64, torch.int32), MEMBER_KEY: (torch.bool,)}
_MEANING = {MAP_KEY: "int64 offsets from draft ids to target ids", MEMBER_KEY: "bool, true for ids that are drafted"}


def read_config(folder: Path) -> dict[str, Any]:
    """Content of a checkpoint's ``config.json``.

    Raises:
        InputError: there is none, or it is no JSON object.
    """
    file = folder / CONFIG_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"no drafter checkpoint at {folder}: cannot read {file.name} ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} must hold a JSON object, got {type(content).__name__}")
    return content


def read_tensors(folder: Path, required: Shapes, optional: Shapes) -> dict[str, Tensor]:
    """All tensors of a checkpoint, accounted for.

    Args:
        folder: checkpoint directory.
        required, optional: shapes of the keys that must, and may, be there.

    Raises:
        InputError: the file is missing or damaged; a key is unknown, missing, of another shape or kind, or holds
            numbers that are not finite.
    """
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise InputError(f"drafter checkpoint {folder} lacks {file.name}")
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} is damaged or no safetensors file: {error}") from None
    _account_keys(file, tensors, required, required | optional)
    for key, tensor in tensors.items():
        _account_values(file, key, tensor, (required | optional)[key])
    return tensors


def write_files(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Write a checkpoint directory, made if absent; files of an older checkpoint in it are replaced.

    Args:
        folder: where to.
        config: content of ``config.json``; the dtype is added.
        tensors: weights by key, cast to ``dtype`` unless they are maps.
        dtype: of the weights in the file.

    Raises:
        InputError: the files cannot be written (no space, no permission); nothing is left behind.
    """
    stored = {key: t.detach().to("cpu", _STORED_AS.get(key, dtype)).contiguous() for key, t in tensors.items()}
    described = {**config, "dtype": str(dtype).removeprefix("torch.")}
    new = {name: folder / f".{name}.{os.getpid()}.tmp" for name in (WEIGHTS_FILE, CONFIG_FILE)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(stored, new[WEIGHTS_FILE], metadata={"format": "pt"})
        new[CONFIG_FILE].write_text(json.dumps(described, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        shutil.copymode(new[CONFIG_FILE], new[WEIGHTS_FILE])  # safetensors lets nobody else read what it writes
        for name, temporary in new.items():
            os.replace(temporary, folder / name)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot write the drafter to {folder}: {error}") from None
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


def draft_to_target(offsets: Tensor, vocab_size: int) -> Tensor:
    """Turn stored offsets into target ids [Vd].

    Raises:
        InputError: an id outside the vocabulary, or one that stands twice.
    """
    ids = torch.arange(len(offsets)) + offsets.to(torch.int64)
    if ids.min() < 0 or ids.max() >= vocab_size or ids.unique().numel() != ids.numel():
        raise InputError(
            f"drafter checkpoint: {MAP_KEY} must map each draft token to a different id in [0, {vocab_size}), "
            f"got ids from {ids.min().item()} to {ids.max().item()}, {ids.unique().numel()} different of {ids.numel()}"
        )
    return ids


def offsets_of(ids: Tensor) -> Tensor:
    """The stored form of target ids [Vd]."""
    return ids.cpu() - torch.arange(len(ids))


def _account_keys(file: Path, tensors: Mapping[str, Tensor], required: Shapes, allowed: Shapes) -> None:
    unknown, missing = sorted(tensors.keys() - allowed.keys()), sorted(required.keys() - tensors.keys())
    prefix = _common_prefix(unknown, allowed)
    if prefix:
        raise InputError(
            f"{file}: keys carry the prefix {prefix!r} (e.g. {unknown[0]!r}); expected none, e.g. "
            f"{unknown[0].removeprefix(prefix)!r}"
        )
    if unknown:
        raise InputError(f"{file}: unknown key {_name(unknown)}; a checkpoint with this config.json does not have it")
    if missing:
        raise InputError(f"{file}: missing key {_name(missing)}; this config.json needs it")


def _account_values(file: Path, key: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise InputError(f"{file}: {key} has shape {list(tensor.shape)}, config.json asks for {list(shape)}")
    if key in _READ_AS:
        if tensor.dtype not in _READ_AS[key]:
            raise InputError(f"{file}: {key} has dtype {tensor.dtype}, expected {_MEANING[key]}")
        return
    if not tensor.is_floating_point():
        raise InputError(f"{file}: {key} has dtype {tensor.dtype}, expected floating-point weights")
    if not bool(torch.isfinite(tensor.float()).all()):
        raise InputError(f"{file}: {key} holds numbers that are not finite; the file is damaged or badly trained")


def _common_prefix(unknown: list[str], allowed: Shapes) -> str:
    """The prefix that turns every unknown key into an allowed one; empty if there is none."""
    if not unknown:
        return ""
    candidates = (unknown[0].removesuffix(key) for key in allowed if unknown[0].endswith("." + key))
    fits = (p for p in candidates if all(key.startswith(p) and key.removeprefix(p) in allowed for key in unknown))
    return next(fits, "")


def _name(keys: list[str]) -> str:
    return repr(keys[0]) + (f" (and {len(keys) - 1} more)" if len(keys) > 1 else "")
