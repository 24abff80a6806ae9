"""``dspark train``: train a drafter from feature stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.options import Device, Override, RecipeName, Target
from dspark.cli.screen import progress_bar, waiting


def train(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE", help="Feature stores.")],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the run: state, log, best checkpoint.")],
    target: Target = None,
    device: Device = None,
    recipe: RecipeName = "shipped",
    overrides: Override = None,
) -> None:
    """Train a drafter. The same command goes on where the last one stopped; the best drafter is in OUT/best."""
    with waiting("Starting ..."):
        from dspark.recipes import find_recipe, fitted, override
        from dspark.recipes.training_run import open_run
    training = find_recipe(recipe).training
    loaded = open_target(target, "float32", device)
    config = override(fitted(training, loaded), overrides or [])
    with waiting("Reading the stores ..."):
        run = open_run(config, stores, loaded, folder)
    with progress_bar("Training", config.optim.steps) as update:
        validation = run.finish(report=typer.echo, progress=update)
    typer.echo(validation)
