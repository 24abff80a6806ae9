"""From an Eagle3 checkpoint directory to a drafter that works for one target."""

from __future__ import annotations

from pathlib import Path

from dspark.drafters.dspark.target_side import DraftTarget
from dspark.drafters.eagle3.checkpoint import load_checkpoint
from dspark.drafters.eagle3.drafter import Eagle3Drafter
from dspark.drafters.fitting import own_matrices


def load_drafter(path: str | Path, target: DraftTarget) -> Eagle3Drafter:
    """Load an Eagle3 checkpoint for a target; see :func:`dspark.drafters.dspark.load_drafter`."""
    stored = load_checkpoint(path)
    return Eagle3Drafter(stored.model, target, **own_matrices(path, stored, stored.config, target))
