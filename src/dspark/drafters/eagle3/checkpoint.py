"""Reading and writing Eagle3 checkpoints.

Layout: ``config.json`` (see :class:`Eagle3Config`) and ``model.safetensors`` with the names of :class:`Eagle3Model`,
optionally ``embed_tokens.weight`` and ``lm_head.weight``. Exactly when the configuration has a ``draft_vocab_size``
there is ``d2t`` [Vd] int64 (target id = draft id + d2t[draft id]), and there may be ``t2d`` [V] bool, true for the
target ids that are in the draft vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.checkpoint_files import MAP_KEY, MEMBER_KEY, Shapes, read_config
from dspark.drafters.eagle3.config import Eagle3Config
from dspark.drafters.eagle3.model import Eagle3Model
from dspark.drafters.stored_drafter import StoredDrafter, read_stored, write_stored


class Eagle3Checkpoint(StoredDrafter[Eagle3Model]):
    """An Eagle3 drafter as stored."""

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
    extra: Shapes = {} if config.draft_vocab_size is None else {MEMBER_KEY: (config.vocab_size,)}
    checkpoint, further = read_stored(Eagle3Checkpoint, folder, config, lambda: Eagle3Model(config), extra=extra)
    if checkpoint.draft_to_target is not None and MEMBER_KEY in further:
        _check_members(checkpoint.draft_to_target, further[MEMBER_KEY])
    return checkpoint


def save_checkpoint(path: str | Path, checkpoint: Eagle3Checkpoint, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a checkpoint directory; see :func:`dspark.drafters.stored_drafter.write_stored`."""
    config, ids = checkpoint.config, checkpoint.draft_to_target
    extra = None if ids is None else {MEMBER_KEY: _members(ids, config.vocab_size)}
    write_stored(Path(path), checkpoint, config, dtype, extra=extra)


def _members(ids: Tensor, vocab_size: int) -> Tensor:
    """[V] bool, true for the target ids [Vd] of the draft vocabulary."""
    return torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, ids.cpu(), True)


def _check_members(ids: Tensor, members: Tensor) -> None:
    if not torch.equal(members, _members(ids, len(members))):
        raise InputError(
            f"drafter checkpoint: {MEMBER_KEY} marks {int(members.sum())} target ids that are not the {len(ids)} ids "
            f"of {MAP_KEY}; the two come from different files"
        )
