"""Reading and writing drafter checkpoints with strict accounting: every key used, every key present, shapes equal.

Layout: ``config.json`` (see :class:`DSparkConfig`) and ``model.safetensors`` with the names of :class:`DSparkModel`,
optionally ``embed_tokens.weight`` and ``lm_head.weight``, and ``d2t`` [Vd] int64 exactly when the configuration has a
``draft_vocab_size`` (target id = draft id + d2t[draft id], as in Eagle3 checkpoints).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.dspark.config import DSparkConfig
from dspark.drafters.dspark.model import DSparkModel

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
EMBED_KEY, LM_HEAD_KEY, MAP_KEY = "embed_tokens.weight", "lm_head.weight", "d2t"
OPTIONAL_KEYS = (EMBED_KEY, LM_HEAD_KEY)

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class DSparkCheckpoint:
    """A drafter as stored.

    Attributes:
        model: the weights, in the file's dtype.
        embed: [V, D] embedding matrix, None when the file leaves it to the target.
        lm_head: [Vd, D] output matrix, None when the file leaves it to the target.
        draft_to_target: [Vd] int64 target id of each draft-vocabulary entry, None for the full vocabulary.
    """

    model: DSparkModel
    embed: Tensor | None = None
    lm_head: Tensor | None = None
    draft_to_target: Tensor | None = None

    @property
    def config(self) -> DSparkConfig:
        """The model's configuration."""
        return self.model.config


def load_checkpoint(path: str | Path) -> DSparkCheckpoint:
    """Read a checkpoint directory.

    Raises:
        InputError: a file is missing, damaged or of another format; a key is unknown, missing or of another shape.
    """
    folder = Path(path)
    config = DSparkConfig.from_dict(_read_json(folder / CONFIG_FILE))
    tensors = _read_tensors(folder / WEIGHTS_FILE)
    with torch.device("meta"):
        model = DSparkModel(config)
    _account(folder / WEIGHTS_FILE, tensors, _required(config, model), _optional(config))
    embed, lm_head, offsets = (tensors.pop(key, None) for key in (*OPTIONAL_KEYS, MAP_KEY))
    model.load_state_dict(tensors, strict=True, assign=True)
    mapping = None if offsets is None else _draft_to_target(offsets, config.vocab_size)
    return DSparkCheckpoint(model=model, embed=embed, lm_head=lm_head, draft_to_target=mapping)


def save_checkpoint(path: str | Path, checkpoint: DSparkCheckpoint, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a checkpoint directory; each file appears complete or not at all.

    Args:
        path: directory, made if absent; files of an older checkpoint in it are replaced.
        checkpoint: what to write.
        dtype: dtype of the weights in the file, bfloat16 or float32.

    Raises:
        InputError: the files cannot be written (no space, no permission); nothing is left behind.
    """
    assert (checkpoint.draft_to_target is None) == (checkpoint.config.draft_vocab_size is None)
    folder = Path(path)
    config = checkpoint.config.to_dict() | {"dtype": str(dtype).removeprefix("torch.")}
    new = {name: folder / f".{name}.{os.getpid()}.tmp" for name in (WEIGHTS_FILE, CONFIG_FILE)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(_tensors(checkpoint, dtype), new[WEIGHTS_FILE], metadata={"format": "pt"})
        new[CONFIG_FILE].write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        for name, temporary in new.items():
            os.replace(temporary, folder / name)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot write the drafter to {folder}: {error}") from None
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


def _tensors(checkpoint: DSparkCheckpoint, dtype: torch.dtype) -> dict[str, Tensor]:
    """All tensors of the file by key, in its dtype."""
    weights = dict(checkpoint.model.state_dict())
    weights |= {
        key: tensor
        for key, tensor in ((EMBED_KEY, checkpoint.embed), (LM_HEAD_KEY, checkpoint.lm_head))
        if tensor is not None
    }
    stored = {key: tensor.detach().to("cpu", dtype).contiguous() for key, tensor in weights.items()}
    if checkpoint.draft_to_target is not None:
        ids = checkpoint.draft_to_target.cpu()
        stored[MAP_KEY] = ids - torch.arange(len(ids))
    return stored


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"no drafter checkpoint at {file.parent}: cannot read {file.name} ({error.strerror})"
        ) from None
    except ValueError as error:
        raise InputError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} must hold a JSON object, got {type(content).__name__}")
    return content


def _read_tensors(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise InputError(f"drafter checkpoint {file.parent} lacks {file.name}")
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} is damaged or no safetensors file: {error}") from None


def _required(config: DSparkConfig, model: DSparkModel) -> Shapes:
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    return shapes if config.draft_vocab_size is None else shapes | {MAP_KEY: (config.draft_vocab_size,)}


def _optional(config: DSparkConfig) -> Shapes:
    return {
        EMBED_KEY: (config.vocab_size, config.hidden_size),
        LM_HEAD_KEY: (config.proposal_vocab_size, config.hidden_size),
    }


def _account(file: Path, tensors: dict[str, Tensor], required: Shapes, optional: Shapes) -> None:
    """Raise InputError unless keys, shapes and kinds are exactly as expected, and all weights are numbers."""
    allowed = required | optional
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
    for key, tensor in tensors.items():
        if tuple(tensor.shape) != allowed[key]:
            raise InputError(f"{file}: {key} has shape {list(tensor.shape)}, config.json asks for {list(allowed[key])}")
        if key == MAP_KEY and tensor.dtype not in (torch.int64, torch.int32):
            raise InputError(
                f"{file}: {key} has dtype {tensor.dtype}, expected int64 offsets from draft ids to target ids"
            )
        if key != MAP_KEY and not tensor.is_floating_point():
            raise InputError(f"{file}: {key} has dtype {tensor.dtype}, expected floating-point weights")
        if key != MAP_KEY and not bool(torch.isfinite(tensor.float()).all()):
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


def _draft_to_target(offsets: Tensor, vocab_size: int) -> Tensor:
    """Turn Eagle3 offsets into target ids, checked: inside the vocabulary, no id twice."""
    ids = torch.arange(len(offsets)) + offsets.to(torch.int64)
    if ids.min() < 0 or ids.max() >= vocab_size or ids.unique().numel() != ids.numel():
        raise InputError(
            f"drafter checkpoint: {MAP_KEY} must map each draft token to a different id in [0, {vocab_size}), "
            f"got ids from {ids.min().item()} to {ids.max().item()}, {ids.unique().numel()} different of {ids.numel()}"
        )
    return ids
