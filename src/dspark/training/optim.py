"""Optimisers and the learning-rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor
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


def build_optimizers(module: nn.Module, muon_prefixes: tuple[str, ...], config: OptimConfig) -> list[Optimizer]:
    """Muon for the matrices under these prefixes if asked for, AdamW for the rest.

    Raises:
        InputError: Muon for weights that are cut into pieces (FSDP2): it needs whole matrices.
    """
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    whole = {name: p for name, p in named.items() if p.ndim == 2 and name.startswith(muon_prefixes)}
    matrices = whole if config.muon_lr is not None else {}
    rest = [parameter for name, parameter in named.items() if name not in matrices]
    optimizers: list[Optimizer] = []
    if rest:
        optimizers.append(AdamW(rest, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, foreach=True))
    if config.muon_lr is not None and matrices:
        if any(isinstance(parameter, DTensor) for parameter in matrices.values()):
            raise InputError("Muon needs whole matrices, fsdp2 cuts them; set optim.muon_lr=none or parallel=ddp")
        decay, rate = config.weight_decay, config.muon_lr
        optimizers.append(Muon(list(matrices.values()), lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    return optimizers


def train_only(module: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Freeze all weights of the model inside an objective but those whose names begin so; none given freezes nothing.

    Raises:
        InputError: nothing would be left to train.
    """
    if not prefixes:
        return
    names = []
    for name, parameter in module.named_parameters():
        own = name.removeprefix("model.")
        parameter.requires_grad_(own.startswith(prefixes))
        names.append(own)
    unknown = [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names)]
    if unknown:
        raise InputError(f"no weights begin with {', '.join(unknown)}; there are {', '.join(_roots(names))}")


def _roots(names: list[str]) -> list[str]:
    """First parts of dotted names, each once."""
    return list(dict.fromkeys(name.split(".")[0] for name in names))


def set_lr(optimizers: list[Optimizer], step: int, config: OptimConfig) -> None:
    """Give every optimiser its rate at a 0-based step."""
    factor = lr_factor(step, config)
    for optimizer in optimizers:
        peak = config.muon_lr if isinstance(optimizer, Muon) else config.lr
        assert peak is not None
        for group in optimizer.param_groups:
            group["lr"] = peak * factor


def clip_gradients(module: nn.Module, largest: float) -> float:
    """Clip the global gradient norm in place; returns the norm before."""
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), largest, foreach=True)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
