"""Reading and writing Eagle3 checkpoints.

Layout: ``config.json`` (see :class:`Eagle3Config`) and ``model.safetensors`` with the names of :class:`Eagle3Model`,
optionally ``embed_tokens.weight`` and ``lm_head.weight``. Exactly when the configuration has a ``draft_vocab_size``
there is ``d2t`` [Vd] int64 (target id = draft id + d2t[draft id]), and there may be ``t2d`` [V] bool, true for the
target ids that are in the draft vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.checkpoint_files import (
    EMBED_KEY,
    LM_HEAD_KEY,
    MAP_KEY,
    MEMBER_KEY,
    Shapes,
    draft_to_target,
    offsets_of,
    read_config,
    read_tensors,
    write_files,
)
from dspark.drafters.eagle3.config import Eagle3Config
from dspark.drafters.eagle3.model import Eagle3Model


@dataclass(frozen=True, kw_only=True)
class Eagle3Checkpoint:
    """A drafter as stored.

    Attributes:
        model: the weights, in the file's dtype.
        embed: [V, D] embedding matrix, None when the file leaves it to the target.
        lm_head: [Vd, D] output matrix, None when the file leaves it to the target.
        draft_to_target: [Vd] int64 target id of each draft-vocabulary entry, None for the full vocabulary.
    """

    model: Eagle3Model
    embed: Tensor | None = None
    lm_head: Tensor | None = None
    draft_to_target: Tensor | None = None

    @property
    def config(self) -> Eagle3Config:
        """The model's configuration."""
        return self.model.config


def load_checkpoint(path: str | Path) -> Eagle3Checkpoint:
    """Read a checkpoint directory.

    Raises:
        InputError: a file is missing, damaged or of another format; a key is unknown, missing or of another shape; the
            two vocabulary maps contradict each other.
    """
    folder = Path(path)
    config = Eagle3Config.from_dict(read_config(folder))
    with torch.device("meta"):
        model = Eagle3Model(config)
    tensors = read_tensors(folder, _required(config, model), _optional(config))
    embed, lm_head, offsets, members = (tensors.pop(key, None) for key in (EMBED_KEY, LM_HEAD_KEY, MAP_KEY, MEMBER_KEY))
    model.load_state_dict(tensors, strict=True, assign=True)
    mapping = None if offsets is None else draft_to_target(offsets, config.vocab_size)
    if mapping is not None and members is not None:
        _check_members(mapping, members)
    return Eagle3Checkpoint(model=model, embed=embed, lm_head=lm_head, draft_to_target=mapping)


def save_checkpoint(path: str | Path, checkpoint: Eagle3Checkpoint, *, dtype: torch.dtype = torch.bfloat16) -> None:
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
        tensors[MEMBER_KEY] = _members(checkpoint.draft_to_target, checkpoint.config.vocab_size)
    write_files(Path(path), checkpoint.config.to_dict(), tensors, dtype)


def _required(config: Eagle3Config, model: Eagle3Model) -> Shapes:
    shapes: Shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    return shapes if config.draft_vocab_size is None else shapes | {MAP_KEY: (config.draft_vocab_size,)}


def _optional(config: Eagle3Config) -> Shapes:
    shapes: Shapes = {
        EMBED_KEY: (config.vocab_size, config.hidden_size),
        LM_HEAD_KEY: (config.proposal_vocab_size, config.hidden_size),
    }
    return shapes if config.draft_vocab_size is None else shapes | {MEMBER_KEY: (config.vocab_size,)}


def _members(ids: Tensor, vocab_size: int) -> Tensor:
    """[V] bool, true for the target ids [Vd] of the draft vocabulary."""
    return torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, ids.cpu(), True)


def _check_members(ids: Tensor, members: Tensor) -> None:
    if not torch.equal(members, _members(ids, len(members))):
        raise InputError(
            f"drafter checkpoint: {MEMBER_KEY} marks {int(members.sum())} target ids that are not the {len(ids)} ids "
            f"of {MAP_KEY}; the two come from different files"
        )
