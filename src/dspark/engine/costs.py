"""Finding the costs of steps: kept from an earlier time, read from a file, or measured now."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from dspark.core import InputError
from dspark.core.processor import processor_name
from dspark.drafters import Drafter
from dspark.engine.profile_plan import ProfilePlan
from dspark.engine.profiling import Tell, measure_costs, tell_nobody
from dspark.scheduling import (
    CostModel,
    LiveCosts,
    ProfileIdentity,
    StepCosts,
    check_profile,
    find_profile,
    keep_profile,
    read_profile,
)
from dspark.target import LoadedTarget

AUTO_COSTS = "auto"
"""Costs as users name them; anything else is a file."""


@dataclass(frozen=True, kw_only=True)
class FoundCosts:
    """Costs and what is said about them.

    Attributes:
        costs: what policies plan with.
        notes: one sentence each.
    """

    costs: StepCosts
    notes: tuple[str, ...] = ()


def check_costs(spec: str | Path | StepCosts) -> None:
    """See, before anything is loaded, whether costs that were named by a path are there.

    Raises:
        InputError: they are not.
    """
    if isinstance(spec, (str, Path)) and spec != AUTO_COSTS and not Path(spec).is_file():
        raise InputError(
            f"there is no profile {str(spec)!r}; expected 'auto', or a file that dspark profile has written"
        )


def find_costs(
    spec: str | Path | StepCosts,
    loaded: LoadedTarget,
    drafter: Drafter,
    *,
    plan: ProfilePlan | None = None,
    tell: Tell = tell_nobody,
) -> FoundCosts:
    """Costs of steps of a target and a drafter on this machine.

    Args:
        spec: ``auto`` (the profile kept in the cache folder, else one that is measured now and kept), a file, or costs.
        loaded: the target; measuring takes its memory away from the engine that has it.
        drafter: the drafter.
        plan: how to measure.
        tell: told about progress.

    Raises:
        InputError: the file is no profile.
    """
    if not isinstance(spec, (str, Path)):
        return FoundCosts(costs=spec)
    identity = profile_identity(loaded, drafter)
    if spec != AUTO_COSTS:
        model = read_profile(spec)
        other = identity.difference(model.identity)
        doubt = (f"they were measured for something else: {other}",) if other else ()
        return FoundCosts(costs=LiveCosts(model), notes=(f"costs of steps from {spec}", *doubt))
    kept = find_profile(identity)
    if kept is not None:
        return FoundCosts(costs=LiveCosts(kept), notes=("costs of steps as profiled on this machine before",))
    model = measure_costs(loaded.target, drafter, identity, plan, tell=tell)
    return FoundCosts(costs=LiveCosts(model), notes=keep_costs(model))


def keep_costs(model: CostModel) -> tuple[str, ...]:
    """Keep a profile for next time, unless there is a doubt about it; returns what is to be said."""
    doubts = check_profile(model)
    if doubts:
        return (f"costs of steps were {model.note}; they are not kept, for there is a doubt: {doubts[0]}",)
    try:
        file = keep_profile(model)
    except OSError as error:
        return (f"costs of steps were {model.note}, but cannot be kept: {error}",)
    return (f"costs of steps were {model.note}, and are kept in {file}",)


def profile_identity(loaded: LoadedTarget, drafter: Drafter) -> ProfileIdentity:
    """What a profile of these two, here and now, is about."""
    target = loaded.target
    facts, device = target.facts, target.device
    on_cuda = device.type == "cuda"
    return ProfileIdentity(
        machine=torch.cuda.get_device_name(device) if on_cuda else processor_name(),
        model=f"{loaded.name}: {facts.num_layers} layers, {facts.num_parameters} parameters",
        drafter=_describe(drafter),
        dtype=str(target.dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        backend=f"{device.type}, pages of {target.page_size}",
        versions={name: version(name) for name in ("dspark", "torch", "transformers")},
    )


def _describe(drafter: Drafter) -> str:
    """A drafter in words that are others where its drafting takes another time."""
    if not drafter.block_size:
        return ""
    folder: Path | None = getattr(drafter, "folder", None)  # drafters that were made by hand come from nowhere
    config = None if folder is None else folder / "config.json"
    digest = hashlib.sha256(config.read_bytes()).hexdigest()[:12] if config is not None and config.is_file() else ""
    words = f"{drafter.name}: blocks of {drafter.block_size}, {len(drafter.tap_layers)} taps"
    return (
        f"{words}, configuration {digest}" if digest else f"{words}, {drafter.context_bytes_per_page(1)} bytes a token"
    )
