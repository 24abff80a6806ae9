"""From a checkpoint directory to a drafter that works for one target."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.dspark.checkpoint import DSparkCheckpoint, load_checkpoint
from dspark.drafters.dspark.drafter import DSparkDrafter
from dspark.drafters.dspark.target_side import DraftTarget, SharedFacts


def load_drafter(path: str | Path, target: DraftTarget) -> DSparkDrafter:
    """Load a DSpark or DFlash checkpoint for a target.

    Args:
        path: checkpoint directory (layout: :mod:`dspark.drafters.dspark.checkpoint`).
        target: the model it was trained for; lends embedding and LM head unless the file holds different ones.

    Raises:
        InputError: the checkpoint is missing, damaged, of another format, or was trained for another target.
    """
    checkpoint = load_checkpoint(path)
    _check_fits(Path(path), checkpoint, target.facts)
    return DSparkDrafter(
        checkpoint.model,
        target,
        embed=_unless_equal(checkpoint.embed, target.embed_weight()),
        lm_head=_unless_equal(checkpoint.lm_head, _target_rows(checkpoint, target)),
        draft_to_target=checkpoint.draft_to_target,
    )


def _check_fits(path: Path, checkpoint: DSparkCheckpoint, facts: SharedFacts) -> None:
    """Raise InputError naming every size in which drafter and target differ."""
    config = checkpoint.config
    sizes = (
        ("hidden size", config.hidden_size, facts.hidden_size),
        ("vocabulary", config.vocab_size, facts.vocab_size),
        ("number of target layers", config.num_target_layers, facts.num_layers),
    )
    wrong = [f"{name} {ours} (target: {theirs})" for name, ours, theirs in sizes if ours != theirs]
    if wrong:
        raise InputError(f"the drafter {path} was made for another target: it has {', '.join(wrong)}")


def _target_rows(checkpoint: DSparkCheckpoint, target: DraftTarget) -> Tensor:
    """The target's output rows of the draft vocabulary."""
    weight = target.lm_head_weight()
    ids = checkpoint.draft_to_target
    return weight if ids is None else weight[ids.to(weight.device)]


def _unless_equal(own: Tensor | None, lent: Tensor) -> Tensor | None:
    """Drop a stored matrix that is the target's anyway, so that it is held in memory once."""
    if own is None:
        return None
    own = own.to(device=lent.device, dtype=lent.dtype)
    return None if torch.equal(own, lent) else own
