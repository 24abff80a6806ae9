"""Training state on disk: everything an exact resume needs, written atomically."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch.optim import Optimizer

from dspark.core import InputError
from dspark.drafters.dspark import DSparkModel

STATE_FILE = "state.pt"


def save_state(folder: Path, model: DSparkModel, optimizers: list[Optimizer], step: int, best_tau: float) -> None:
    """Write weights, optimiser moments and the number of finished steps; an interrupted write changes nothing."""
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
    finally:
        temporary.unlink(missing_ok=True)


def load_state(folder: Path, model: DSparkModel, optimizers: list[Optimizer]) -> tuple[int, float]:
    """Restore a run in place; returns the number of finished steps and the best tau so far.

    Raises:
        InputError: the state belongs to another drafter configuration.
    """
    state = torch.load(folder / STATE_FILE, weights_only=True)
    try:
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
    except (RuntimeError, ValueError) as mismatch:
        raise InputError(f"{folder} holds a run of another configuration; choose another folder ({mismatch})") from None
    return int(state["step"]), float(state["best_tau"])
