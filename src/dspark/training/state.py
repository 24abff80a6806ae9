"""Training state on disk: everything an exact resume needs, written atomically."""

from __future__ import annotations

import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch.optim import Optimizer

from dspark.core import InputError
from dspark.drafters.dspark import DSparkModel

STATE_FILE = "state.pt"


def save_state(folder: Path, model: DSparkModel, optimizers: list[Optimizer], step: int, best_tau: float) -> None:
    """Write weights, optimiser moments and the number of finished steps; an interrupted write changes nothing.

    Raises:
        InputError: it cannot be written (no space, no permission).
    """
    temporary = folder / f".{STATE_FILE}.{os.getpid()}"
    try:
        torch.save(
            {
                "model": model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                "step": step,
                "best_tau": best_tau,
            },
            temporary,
        )
        os.replace(temporary, folder / STATE_FILE)
    except (OSError, RuntimeError) as error:  # the archive writer of torch raises RuntimeError when the disk is full
        reason = getattr(error, "strerror", None) or "is the disk full?"
        raise InputError(f"the state of the run cannot be written to {folder}: {reason}") from error
    finally:
        temporary.unlink(missing_ok=True)


def load_state(folder: Path, model: DSparkModel, optimizers: list[Optimizer]) -> tuple[int, float]:
    """Restore a run in place; returns the number of finished steps and the best tau so far.

    Raises:
        InputError: the file is damaged, or belongs to another drafter configuration.
    """
    state = _read(folder / STATE_FILE)
    try:
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    except (RuntimeError, ValueError) as mismatch:
        raise InputError(f"{folder} holds a run of another configuration; choose another folder ({mismatch})") from None
    return int(state["step"]), float(state["best_tau"])


def _read(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, UnpicklingError, ValueError) as error:  # whatever foreign bytes lead to
        raise InputError(f"{path} is damaged or no state of a run; choose another folder") from error
    if not isinstance(state, dict) or not state.keys() >= {"model", "optimizers", "step", "best_tau"}:
        raise InputError(f"{path} is no state of a run; choose another folder")
    return state
