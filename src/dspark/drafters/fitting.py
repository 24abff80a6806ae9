"""Fitting a stored drafter to the target it is to work for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, TypedDict

import torch
from torch import Tensor

from dspark.core import InputError
from dspark.drafters.dspark.target_side import DraftTarget, SharedFacts
from dspark.drafters.stored_drafter import StoredDrafter


class DraftSizes(Protocol):
    """What every drafter's configuration says about its target."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    @property
    def num_target_layers(self) -> int: ...  # noqa: D102


class OwnMatrices(TypedDict):
    """What a drafter has of its own beside its weights; None for what it takes from the target."""

    embed: Tensor | None
    lm_head: Tensor | None
    draft_to_target: Tensor | None


def own_matrices(path: str | Path, stored: StoredDrafter[Any], config: DraftSizes, target: DraftTarget) -> OwnMatrices:
    """See that a drafter fits a target, and what it does not take from it.

    Raises:
        InputError: it was made for a target of other sizes.
    """
    _check_fits(Path(path), config, target.facts)
    return OwnMatrices(
        embed=_unless_equal(stored.embed, target.embed_weight()),
        lm_head=_unless_equal(stored.lm_head, _lent_head(stored.draft_to_target, target)),
        draft_to_target=stored.draft_to_target,
    )


def _check_fits(path: Path, config: DraftSizes, facts: SharedFacts) -> None:
    """Raise InputError naming every size in which drafter and target differ."""
    sizes = (
        ("hidden size", config.hidden_size, facts.hidden_size),
        ("vocabulary", config.vocab_size, facts.vocab_size),
        ("number of target layers", config.num_target_layers, facts.num_layers),
    )
    wrong = [f"{name} {ours} (target: {theirs})" for name, ours, theirs in sizes if ours != theirs]
    if wrong:
        raise InputError(f"the drafter {path} was made for another target: it has {', '.join(wrong)}")


def _lent_head(draft_to_target: Tensor | None, target: DraftTarget) -> Tensor:
    """The target's output rows of a draft vocabulary, [Vd, D]."""
    weight = target.lm_head_weight()
    return weight if draft_to_target is None else weight[draft_to_target.to(weight.device)]


def _unless_equal(own: Tensor | None, lent: Tensor) -> Tensor | None:
    """Drop a stored matrix that is the target's anyway, so that it is held in memory once."""
    if own is None:
        return None
    own = own.to(device=lent.device, dtype=lent.dtype)
    return None if torch.equal(own, lent) else own
