"""What every stored drafter consists of, and its way from and to a checkpoint directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from dspark.drafters.checkpoint_files import (
    EMBED_KEY,
    LM_HEAD_KEY,
    MAP_KEY,
    Shapes,
    draft_to_target,
    offsets_of,
    read_tensors,
    write_files,
)

ModelT = TypeVar("ModelT", bound=nn.Module)
StoredT = TypeVar("StoredT")


class StoredConfig(Protocol):
    """What a drafter's configuration says about the matrices beside its weights."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    @property
    def draft_vocab_size(self) -> int | None: ...  # noqa: D102

    @property
    def proposal_vocab_size(self) -> int: ...  # noqa: D102

    def to_dict(self) -> dict[str, Any]:
        """Content of ``config.json``."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoredDrafter(Generic[ModelT]):
    """A drafter as stored.

    Attributes:
        model: the weights, in the file's dtype.
        embed: [V, D] embedding matrix, None when the file leaves it to the target.
        lm_head: [Vd, D] output matrix, None when the file leaves it to the target.
        draft_to_target: [Vd] int64 target id of each draft-vocabulary entry, None for the full vocabulary.
    """

    model: ModelT
    embed: Tensor | None = None
    lm_head: Tensor | None = None
    draft_to_target: Tensor | None = None


def read_stored(
    kind: Callable[..., StoredT],
    folder: Path,
    config: StoredConfig,
    build: Callable[[], nn.Module],
    *,
    extra: Shapes | None = None,
) -> tuple[StoredT, dict[str, Tensor]]:
    """Read the weights of a drafter.

    Args:
        kind: the class of stored drafter.
        folder: checkpoint directory.
        config: its configuration.
        build: makes the model; runs on the meta device.
        extra: shapes of further keys that may be there.

    Returns:
        the stored drafter, and those of the further keys that are there.

    Raises:
        InputError: a file is missing or damaged; a key is unknown, missing or of another shape.
    """
    with torch.device("meta"):
        model = build()
    tensors = read_tensors(folder, _required(config, model), _optional(config) | (extra or {}))
    embed, lm_head, offsets = (tensors.pop(key, None) for key in (EMBED_KEY, LM_HEAD_KEY, MAP_KEY))
    further = {key: tensors.pop(key) for key in extra or {} if key in tensors}
    model.load_state_dict(tensors, strict=True, assign=True)
    mapping = None if offsets is None else draft_to_target(offsets, config.vocab_size)
    return kind(model=model, embed=embed, lm_head=lm_head, draft_to_target=mapping), further


def write_stored(
    folder: Path,
    stored: StoredDrafter[Any],
    config: StoredConfig,
    dtype: torch.dtype,
    *,
    extra: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint directory; each file appears complete or not at all.

    Args:
        folder: made if absent; files of an older checkpoint in it are replaced.
        stored: what to write.
        config: its configuration.
        dtype: dtype of the weights in the file, bfloat16 or float32.
        extra: further keys.

    Raises:
        InputError: the files cannot be written (no space, no permission); nothing is left behind.
    """
    assert (stored.draft_to_target is None) == (config.draft_vocab_size is None)
    own = {EMBED_KEY: stored.embed, LM_HEAD_KEY: stored.lm_head}
    tensors = stored.model.state_dict() | {key: tensor for key, tensor in own.items() if tensor is not None}
    if stored.draft_to_target is not None:
        tensors[MAP_KEY] = offsets_of(stored.draft_to_target)
    write_files(folder, config.to_dict(), tensors | dict(extra or {}), dtype)


def _required(config: StoredConfig, model: nn.Module) -> Shapes:
    shapes: Shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    return shapes if config.draft_vocab_size is None else shapes | {MAP_KEY: (config.draft_vocab_size,)}


def _optional(config: StoredConfig) -> Shapes:
    return {
        EMBED_KEY: (config.vocab_size, config.hidden_size),
        LM_HEAD_KEY: (config.proposal_vocab_size, config.hidden_size),
    }
