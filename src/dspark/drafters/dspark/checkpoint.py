"""Reading and writing drafter checkpoints with strict accounting: every key used, every key present, shapes equal.

Layout: ``config.json`` (see :class:`DSparkConfig`) and ``model.safetensors`` with the names of :class:`DSparkModel`,
optionally ``embed_tokens.weight`` and ``lm_head.weight``, and ``d2t`` [Vd] int64 exactly when the configuration has a
``draft_vocab_size`` (target id = draft id + d2t[draft id], as in Eagle3 checkpoints).
"""

from __future__ import annotations

from pathlib import Path

import torch

from dspark.drafters.checkpoint_files import read_config
from dspark.drafters.dspark.config import DSparkConfig
from dspark.drafters.dspark.model import DSparkModel
from dspark.drafters.stored_drafter import StoredDrafter, read_stored, write_stored


class DSparkCheckpoint(StoredDrafter[DSparkModel]):
    """A DSpark or DFlash drafter as stored."""

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
    checkpoint, _ = read_stored(DSparkCheckpoint, folder, config, lambda: DSparkModel(config))
    return checkpoint


def save_checkpoint(path: str | Path, checkpoint: DSparkCheckpoint, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a checkpoint directory; see :func:`dspark.drafters.stored_drafter.write_stored`."""
    write_stored(Path(path), checkpoint, checkpoint.config, dtype)
