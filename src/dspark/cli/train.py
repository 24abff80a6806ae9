"""``dspark train``: train a drafter from conversations or feature stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.options import Device, Dtype, Target
from dspark.cli.screen import progress_bar, waiting


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Drafter and training, for example shipped.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OUT [NAME=VALUE]...",
            help="Folder of the run: state, log, best checkpoint; then fields of the recipe that shall be different, "
            "for example optim.steps=3000.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", metavar="FILE.jsonl", help="Conversations; the target runs beside the trainer. May be repeated."
        ),
    ] = None,
    store: Annotated[
        list[Path] | None,
        typer.Option("--store", metavar="STORE", help="Feature store, instead of --data. May be repeated."),
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option("--init-from", metavar="DIR", help="Start from this checkpoint's weights.")
    ] = None,
    target: Target = None,
    dtype: Dtype = None,
    device: Device = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would take: parameters, memory, tokens, storage, time.")
    ] = False,
    processes: Annotated[int, typer.Option(help="For --dry-run: processes that share the run.")] = 1,
    flops: Annotated[
        float | None,
        typer.Option(help="For --dry-run: operations per second of one process; measured here if not given."),
    ] = None,
) -> None:
    """Train a drafter. The same command goes on where the last one stopped; the best drafter is in OUT/best.

    Several processes share a run when torchrun starts them: torchrun --nproc-per-node 8 -m dspark.cli train ...
    """
    folder, assignments = _sorted(words or [])
    if dry_run:
        with waiting("Starting ..."):
            from dspark.recipes.cost import estimate_recipe
        report = estimate_recipe(
            recipe, assignments, target, data=data or (), stores=store or (), processes=processes, flops=flops
        )
        typer.echo(report.to_text(), nl=False)
        return
    with waiting("Starting ..."):
        from dspark.core import InputError
        from dspark.recipes import find_recipe, fitted, override
        from dspark.recipes.training_run import TrainingData, open_run
        from dspark.training.ranks import join, leave, torchrun_device
    if folder is None:
        raise InputError(f"a folder for the run is missing: dspark train {recipe} OUT")
    training = find_recipe(recipe).training
    chosen = TrainingData(files=tuple(data or ()), stores=tuple(store or ()))
    loaded = open_target(target, dtype, device or torchrun_device())
    config = override(fitted(training, loaded), assignments)
    ranks = join(loaded.target.device)
    try:
        with waiting("Reading the data ..."):
            run = open_run(config, chosen, loaded, folder, ranks=ranks, init_from=init_from)
        with progress_bar("Training", config.optim.steps) as update:
            outcome = run.finish(report=typer.echo, progress=update)
        if ranks.first:
            typer.echo(outcome)
    finally:
        leave(ranks)


def _sorted(words: list[str]) -> tuple[Path | None, list[str]]:
    """The folder, and the assignments."""
    from dspark.core import InputError

    folders = [word for word in words if "=" not in word]
    if len(folders) > 1:
        raise InputError(f"expected one folder and NAME=VALUE words behind it, got {folders[1]!r} too")
    return (Path(folders[0]) if folders else None), [word for word in words if "=" in word]
