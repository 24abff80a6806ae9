"""From a checkpoint directory of any kind to a drafter that works for one target."""

from __future__ import annotations

from pathlib import Path

from dspark.drafters import dspark, eagle3
from dspark.drafters.checkpoint_files import read_config
from dspark.drafters.dspark.target_side import DraftTarget


def load_drafter(path: str | Path, target: DraftTarget) -> dspark.DSparkDrafter | eagle3.Eagle3Drafter:
    """Load a DSpark, DFlash or Eagle3 checkpoint for a target; ``architectures`` in its ``config.json`` says which.

    Args:
        path: checkpoint directory (layouts: :mod:`dspark.drafters.dspark.checkpoint`,
            :mod:`dspark.drafters.eagle3.checkpoint`).
        target: the model it was trained for; lends embedding and LM head unless the file holds different ones.

    Raises:
        InputError: the checkpoint is missing, damaged, of another format, or was trained for another target.
    """
    kind = str(read_config(Path(path)).get("architectures"))
    return eagle3.load_drafter(path, target) if "eagle" in kind.lower() else dspark.load_drafter(path, target)
