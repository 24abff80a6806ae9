"""Training state on disk: everything an exact resume needs, whatever the number of processes, written atomically."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dspark.core import InputError
from dspark.training.replica import cut_like, gathered

STATE_FILE = "state.pt"
STATE_VERSION = 2


@dataclass(kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        step: finished steps.
        best_tau: best tau of all validations.
        best_step: where it was.
        stale: validations since then.
    """

    step: int = 0
    best_tau: float = 0.0
    best_step: int = 0
    stale: int = 0


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """A run on disk, with whole CPU tensors.

    Attributes:
        identity: what may not change (configuration and data).
        weights: by parameter name.
        moments: per optimiser, by parameter name, its tensors by name.
        average: moving average of the weights by name; empty without one.
        extras: of the trainee.
        progress: fields of Progress.
    """

    identity: dict[str, Any]
    weights: dict[str, Tensor]
    moments: list[dict[str, dict[str, Tensor]]]
    average: dict[str, Tensor]
    extras: dict[str, Tensor]
    progress: dict[str, Any]


def gather_moments(module: nn.Module, optimizers: Sequence[Optimizer]) -> list[dict[str, dict[str, Tensor]]]:
    """Whole tensors of all optimisers; all processes must call it."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return [
        {
            names[parameter]: {key: gathered(value) for key, value in tensors.items()}
            for parameter, tensors in optimizer.state.items()
        }
        for optimizer in optimizers
    ]


@torch.no_grad()
def restore(module: nn.Module, optimizers: Sequence[Optimizer], saved: SavedState) -> None:
    """Give module and optimisers what was saved.

    Raises:
        InputError: they are not those it was saved from.
    """
    named = dict(module.named_parameters())
    try:
        for name, parameter in named.items():
            parameter.copy_(cut_like(saved.weights[name], parameter))
        for optimizer, moments in zip(optimizers, saved.moments, strict=True):
            for name, tensors in moments.items():
                optimizer.state[named[name]] = {key: cut_like(value, named[name]) for key, value in tensors.items()}
    except (RuntimeError, ValueError, KeyError) as mismatch:
        raise InputError(f"the folder holds a run of other optimisers; choose another folder ({mismatch})") from None


def write_state(folder: Path, state: SavedState) -> None:
    """Write the state; an interrupted write changes nothing.

    Raises:
        InputError: it cannot be written (no space, no permission).
    """
    temporary = folder / f".{STATE_FILE}.{os.getpid()}"
    try:
        torch.save({"version": STATE_VERSION, **vars(state)}, temporary)
        os.replace(temporary, folder / STATE_FILE)
    except (OSError, RuntimeError) as error:  # the archive writer of torch raises RuntimeError when the disk is full
        reason = getattr(error, "strerror", None) or "is the disk full?"
        raise InputError(f"the state of the run cannot be written to {folder}: {reason}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_state(folder: Path, identity: Mapping[str, Any]) -> SavedState | None:
    """The run that the folder holds; None if it holds none.

    Raises:
        InputError: the file is damaged, or belongs to another run.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return None
    state = _read(path)
    for name, value in identity.items():
        if state.identity.get(name) != value:
            raise InputError(
                f"{folder} holds a run of another configuration: its {name} is different; choose another folder, or "
                "start a new run from its best drafter with --init-from"
            )
    return state


def _read(path: Path) -> SavedState:
    try:
        content = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, UnpicklingError, ValueError) as error:  # whatever foreign bytes lead to
        raise InputError(f"{path} is damaged or no state of a run; choose another folder") from error
    if not isinstance(content, dict) or content.pop("version", None) != STATE_VERSION:
        raise InputError(f"{path} is no state of a run of this version; choose another folder")
    return SavedState(**content)


def progress_values(progress: Progress) -> dict[str, Any]:
    """Progress as plain values."""
    return asdict(progress)
