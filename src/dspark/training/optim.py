"""Optimisers and the learning-rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from dspark.core import InputError


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How weights move.

    Attributes:
        lr: peak learning rate of AdamW.
        muon_lr: peak learning rate of Muon for the matrices of backbone and fusion (scaled to AdamW's RMS); None trains
            everything with AdamW.
        betas, weight_decay: of AdamW (decay of both).
        clip: largest global gradient norm.
        warmup: steps of linear warm-up.
        steps: length of the schedule.
        decay_share: last share of the steps over which the rate falls linearly to 0; None means cosine to 0 over all.
    """

    lr: float = 6e-4
    muon_lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip: float = 1.0
    warmup: int = 100
    steps: int = 1000
    decay_share: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or self.warmup < 0:
            raise InputError(f"steps must be >= 1 and warmup >= 0, got {self.steps} and {self.warmup}")
        if self.decay_share is not None and not 0 <= self.decay_share <= 1:
            raise InputError(f"decay_share must be in [0, 1], got {self.decay_share}")


def lr_factor(step: int, config: OptimConfig) -> float:
    """Factor in [0, 1] on the peak rate at a 0-based step."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.decay_share is None:
        progress = (step - config.warmup) / max(1, config.steps - config.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    decay_steps = max(1.0, config.decay_share * config.steps)
    return max(0.0, min(1.0, (config.steps - step) / decay_steps))


def build_optimizers(model: nn.Module, config: OptimConfig) -> list[Optimizer]:
    """Muon for the backbone's matrices if asked for, AdamW for the rest."""
    backbone = {
        name: parameter
        for name, parameter in model.named_parameters()
        if config.muon_lr is not None and parameter.ndim == 2 and name.startswith(("layers.", "fc."))
    }
    rest = [parameter for name, parameter in model.named_parameters() if name not in backbone]
    optimizers: list[Optimizer] = [
        AdamW(rest, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, foreach=True)
    ]
    if config.muon_lr is not None:
        matrices = list(backbone.values())
        optimizers.append(
            Muon(matrices, lr=config.muon_lr, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw")
        )
    return optimizers


def set_lr(optimizers: list[Optimizer], factor: float) -> None:
    """Scale every group's rate relative to its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("peak_lr", group["lr"])
            group["lr"] = group["peak_lr"] * factor


def clip_gradients(model: nn.Module, largest: float) -> float:
    """Clip the global gradient norm in place; returns the norm before."""
    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), largest, foreach=True))
