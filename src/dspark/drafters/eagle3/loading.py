"""From an Eagle3 checkpoint directory to a drafter that works for one target."""

from __future__ import annotations

from pathlib import Path

from dspark.drafters.dspark.loading import check_fits, lent_head, unless_equal
from dspark.drafters.dspark.target_side import DraftTarget
from dspark.drafters.eagle3.checkpoint import load_checkpoint
from dspark.drafters.eagle3.drafter import Eagle3Drafter


def load_drafter(path: str | Path, target: DraftTarget) -> Eagle3Drafter:
    """Load an Eagle3 checkpoint for a target.

    Args:
        path: checkpoint directory (layout: :mod:`dspark.drafters.eagle3.checkpoint`).
        target: the model it was trained for; lends embedding and LM head unless the file holds different ones.

    Raises:
        InputError: the checkpoint is missing, damaged, of another format, or was trained for another target.
    """
    checkpoint = load_checkpoint(path)
    check_fits(Path(path), checkpoint.config, target.facts)
    return Eagle3Drafter(
        checkpoint.model,
        target,
        embed=unless_equal(checkpoint.embed, target.embed_weight()),
        lm_head=unless_equal(checkpoint.lm_head, lent_head(checkpoint.draft_to_target, target)),
        draft_to_target=checkpoint.draft_to_target,
    )
