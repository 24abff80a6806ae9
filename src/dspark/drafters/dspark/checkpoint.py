"""Reading and writing drafter checkpoints with strict accounting: every key used, every key present, shapes equal.

Layout: ``config.json`` (see :class:`DSparkConfig`) and ``model.safetensors`` with the names of :class:`DSparkModel`,
optionally ``embed_tokens.weight`` and ``lm_head.weight``, and ``d2t`` [Vd] int64 exactly when the configuration has a
``draft_vocab_size`` (target id = draft id + d2t[draft id], as in Eagle3 checkpoints).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dspark.drafters.checkpoint_files import (
    EMBED_KEY,
    LM_HEAD_KEY,
    MAP_KEY,
    Shapes,
    draft_to_target,
    offsets_of,
    read_config,
    read_tensors,
    write_files,
)
from dspark.drafters.dspark.config import DSparkConfig
from dspark.drafters.dspark.model import DSparkModel


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
    config = DSparkConfig.from_dict(read_config(folder))
    with torch.device("meta"):
        model = DSparkModel(config)
    tensors = read_tensors(folder, _required(config, model), _optional(config))
    embed, lm_head, offsets = (tensors.pop(key, None) for key in (EMBED_KEY, LM_HEAD_KEY, MAP_KEY))
    model.load_state_dict(tensors, strict=True, assign=True)
    mapping = None if offsets is None else draft_to_target(offsets, config.vocab_size)
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
    own = {EMBED_KEY: checkpoint.embed, LM_HEAD_KEY: checkpoint.lm_head}
    tensors = checkpoint.model.state_dict() | {key: tensor for key, tensor in own.items() if tensor is not None}
    if checkpoint.draft_to_target is not None:
        tensors[MAP_KEY] = offsets_of(checkpoint.draft_to_target)
    write_files(Path(path), checkpoint.config.to_dict(), tensors, dtype)


def _required(config: DSparkConfig, model: DSparkModel) -> Shapes:
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    return shapes if config.draft_vocab_size is None else shapes | {MAP_KEY: (config.draft_vocab_size,)}


def _optional(config: DSparkConfig) -> Shapes:
    return {
        EMBED_KEY: (config.vocab_size, config.hidden_size),
        LM_HEAD_KEY: (config.proposal_vocab_size, config.hidden_size),
    }
