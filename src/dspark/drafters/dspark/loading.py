"""From a checkpoint directory to a drafter that works for one target."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.dspark.checkpoint import load_checkpoint
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
    check_fits(Path(path), checkpoint.config, target.facts)
    return DSparkDrafter(
        checkpoint.model,
        target,
        embed=unless_equal(checkpoint.embed, target.embed_weight()),
        lm_head=unless_equal(checkpoint.lm_head, lent_head(checkpoint.draft_to_target, target)),
        draft_to_target=checkpoint.draft_to_target,
        folder=Path(path),
    )


class DraftSizes(Protocol):
    """What every drafter's configuration says about its target."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    @property
    def num_target_layers(self) -> int: ...  # noqa: D102


def check_fits(path: Path, config: DraftSizes, facts: SharedFacts) -> None:
    """See that a drafter was made for a target of these sizes.

    Raises:
        InputError: names every size in which drafter and target differ.
    """
    sizes = (
        ("hidden size", config.hidden_size, facts.hidden_size),
        ("vocabulary", config.vocab_size, facts.vocab_size),
        ("number of target layers", config.num_target_layers, facts.num_layers),
    )
    wrong = [f"{name} {ours} (target: {theirs})" for name, ours, theirs in sizes if ours != theirs]
    if wrong:
        raise InputError(f"the drafter {path} was made for another target: it has {', '.join(wrong)}")


def lent_head(draft_to_target: Tensor | None, target: DraftTarget) -> Tensor:
    """The target's output rows of a draft vocabulary, [Vd, D]."""
    weight = target.lm_head_weight()
    return weight if draft_to_target is None else weight[draft_to_target.to(weight.device)]


def unless_equal(own: Tensor | None, lent: Tensor) -> Tensor | None:
    """Drop a stored matrix that is the target's anyway, so that it is held in memory once."""
    if own is None:
        return None
    own = own.to(device=lent.device, dtype=lent.dtype)
    return None if torch.equal(own, lent) else own
