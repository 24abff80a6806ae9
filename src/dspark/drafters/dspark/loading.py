"""From a checkpoint directory to a drafter that works for one target."""

from __future__ import annotations

from pathlib import Path

from dspark.drafters.dspark.checkpoint import load_checkpoint
from dspark.drafters.dspark.drafter import DSparkDrafter
from dspark.drafters.dspark.target_side import DraftTarget
from dspark.drafters.fitting import own_matrices


def load_drafter(path: str | Path, target: DraftTarget) -> DSparkDrafter:
    """Load a DSpark or DFlash checkpoint for a target.

    Args:
        path: checkpoint directory (layout: :mod:`dspark.drafters.dspark.checkpoint`).
        target: the model it was trained for; lends embedding and LM head unless the file holds different ones.

    Raises:
        InputError: the checkpoint is missing, damaged, of another format, or was trained for another target.
    """
    stored = load_checkpoint(path)
    own = own_matrices(path, stored, stored.config, target)
    return DSparkDrafter(stored.model, target, **own, folder=Path(path))
