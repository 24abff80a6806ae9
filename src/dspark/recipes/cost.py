"""What a recipe would take, for ``dspark train --dry-run``: no weights are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.recipes.fit import fitted_to
from dspark.recipes.overrides import override
from dspark.recipes.registry import find_recipe
from dspark.target import DEFAULT_TARGET
from dspark.target.facts import TargetFacts, read_facts
from dspark.target.gguf import converted_directory
from dspark.target.hub import must_stay_local
from dspark.target.quiet import quiet_transformers
from dspark.target.sources import GGUFFile, HubModel, resolve
from dspark.training.config import TrainConfig
from dspark.training.cost import Assumptions, Cost, TargetSizes, estimate, measured_flops
from dspark.training.store_source import StoreSource

_MEAN_LENGTH = 512


@dataclass(frozen=True, kw_only=True)
class CostReport:
    """An estimate and what it rests on."""

    recipe: str
    config: TrainConfig
    target: TargetSizes
    given: Assumptions
    cost: Cost

    def to_text(self) -> str:
        """A few tables in plain text."""
        cost, given, config = self.cost, self.given, self.config
        active = (
            f", {_count(cost.active)} of them used by a slot" if cost.active != sum(cost.parameters.values()) else ""
        )
        steps = f"{config.optim.steps:,} steps of {config.sequences_per_step} sequences"
        epochs = "" if cost.epochs is None else f" ({cost.epochs:.1f} times the data)"
        lines = [
            f"{self.recipe} for {self.target.name} ({_count(self.target.parameters)} parameters)",
            *_table(f"parameters: {_count(sum(cost.parameters.values()))}{active}", cost.parameters, _count),
            *_table(f"memory of a process: {_bytes(sum(cost.memory.values()))}", cost.memory, _bytes),
            *_table("storage", cost.storage, _bytes),
            f"tokens: {_count(cost.tokens)} in {steps}{epochs}, {_count(cost.slots)} slots learnt from",
            *_table(f"time: {_duration(cost.seconds)}", _shares(cost.operations), str),
            f"assumed: {given.mean_length:.0f} tokens a sequence, {given.answer_share:.0%} of them answers; "
            f"{given.processes} process{'es' * (given.processes > 1)}, {given.flops:.2g} operations a second each, "
            f"half of that reached; {'target runs beside the trainer' if given.online else 'features from a store'}",
        ]
        return "\n".join(lines) + "\n"


def estimate_recipe(
    recipe: str,
    assignments: Sequence[str],
    target: str | None = None,
    *,
    data: Sequence[Path] = (),
    stores: Sequence[Path] = (),
    processes: int = 1,
    flops: float | None = None,
) -> CostReport:
    """Estimate a recipe.

    Args:
        recipe: its name.
        assignments: NAME=VALUE changes of its fields.
        target: name, path or hub id; None for the one the recipe is made for, else the default target.
        data, stores: files of conversations, or feature stores, to know lengths from; a plain guess without.
        processes: that share the run.
        flops: operations per second of one process; measured here for None.

    Raises:
        InputError: no such recipe or field, no such target, bad data, numbers out of range.
    """
    if processes < 1 or (flops is not None and not flops > 0):
        raise InputError(f"processes must be >= 1 and flops > 0, got {processes} and {flops}")
    found = find_recipe(recipe)
    config, sizes = found.training, found.target
    if target is not None or sizes is None:
        facts, sizes = read_sizes(target or DEFAULT_TARGET)
        config = fitted_to(config, facts)
    config = override(config, assignments)
    if flops is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        flops = measured_flops(device, torch.bfloat16 if config.bf16 else torch.float32)
    given = _assumed(data, stores, processes, flops)
    return CostReport(recipe=recipe, config=config, target=sizes, given=given, cost=estimate(config, sizes, given))


def read_sizes(spec: str) -> tuple[TargetFacts, TargetSizes]:
    """Facts and sizes of a target from its configuration alone.

    Raises:
        InputError: there is none, or it is of a kind that cannot run packed.
    """
    source = resolve(spec)
    place, local = spec, True
    if isinstance(source, GGUFFile):
        place = str(converted_directory(source))
    elif isinstance(source, HubModel):
        place, local = source.repo_id, must_stay_local(source.repo_id)
    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(place, local_files_only=local)
        except Exception as error:  # whatever a foreign file makes the reader raise
            raise InputError(f"the configuration of {spec} cannot be read: {error}") from error
        facts = read_facts(config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return facts, TargetSizes(
        name=spec, parameters=parameters, hidden_size=facts.hidden_size, vocab_size=facts.vocab_size
    )


def _assumed(data: Sequence[Path], stores: Sequence[Path], processes: int, flops: float) -> Assumptions:
    if not data and not stores:
        return Assumptions(mean_length=_MEAN_LENGTH, processes=processes, flops=flops)
    corpus = StoreSource(stores).corpus if stores else Corpus.read(data)
    if not corpus.tokens:
        raise InputError("there are no conversations in these files; synthesise some first")
    return Assumptions(
        mean_length=corpus.tokens / corpus.sequences,
        answer_share=float(corpus.mask.mean()),
        sequences=corpus.sequences,
        processes=processes,
        flops=flops,
        online=not stores,
    )


def _table(title: str, rows: Mapping[str, Any], form: Callable[[Any], str]) -> list[str]:
    return [title, *(f"  {name:<46}{form(value):>10}" for name, value in rows.items() if value)]


def _shares(parts: Mapping[str, float]) -> dict[str, str]:
    whole = sum(parts.values())
    return {name: f"{value / whole:.0%}" for name, value in parts.items() if value}


def _count(value: float) -> str:
    return _scaled(value, ("", " K", " M", " B", " T"))


def _bytes(value: float) -> str:
    return _scaled(value, (" B", " kB", " MB", " GB", " TB", " PB"))


def _scaled(value: float, units: Sequence[str]) -> str:
    place = 0
    while value >= 1000 and place < len(units) - 1:
        value, place = value / 1000, place + 1
    return f"{value:.0f}{units[place]}" if value >= 100 or place == 0 else f"{value:.1f}{units[place]}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
