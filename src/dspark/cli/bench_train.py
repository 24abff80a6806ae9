"""``dspark bench train``: a training step beside a plain one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.options import Device, Dtype, Target
from dspark.cli.screen import progress_bar, waiting


def bench_train(
    assignments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help="Fields of the recipe that shall be different, for example drafter.draft_vocab_size=none.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[str, typer.Option("--recipe", help="Drafter and training.")] = "shipped",
    target: Target = None,
    dtype: Dtype = None,
    device: Device = None,
    sequences: Annotated[int, typer.Option(help="Sequences of the step.")] = 2,
    length: Annotated[int, typer.Option(help="Tokens of each.")] = 512,
    anchors: Annotated[int, typer.Option(help="Blocks learnt from in each.")] = 96,
    repeats: Annotated[int, typer.Option(help="Turns of either kind.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", help="Also write the figures as JSON.")] = None,
) -> None:
    """One training step: time by part, and speed and memory beside a plain float32 step over the same batch.

    Both steps use AdamW, unless optim.muon_lr=RATE is given: Muon costs both of them the same.
    """
    with waiting("Starting ..."):
        from dspark.core.whole_file import write_whole
        from dspark.recipes import find_recipe, fitted, override
        from dspark.recipes.train_bench import StepBench, StepPlan
    plan = StepPlan(sequences=sequences, length=length, anchors=anchors, repeats=repeats)
    training = find_recipe(recipe).training
    loaded = open_target(target, dtype, device)
    with waiting("Preparing the batch ..."):
        bench = StepBench(
            loaded, override(fitted(training, loaded), ["optim.muon_lr=none", *(assignments or [])]), plan
        )
    with progress_bar("Measuring", repeats) as update:
        report = bench.run(update)
    typer.echo(report.to_text(), nl=False)
    if out is not None:
        write_whole(out, json.dumps(report.to_json(), indent=1) + "\n")
