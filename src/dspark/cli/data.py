"""``dspark data``: conversations that the target writes itself, and its features on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark.cli.build import open_llm, open_target
from dspark.cli.options import Device, Dtype, Override, RecipeName, Target
from dspark.cli.screen import progress_bar, waiting

data_app = typer.Typer(help="Make training data for a drafter.", no_args_is_help=True)


@data_app.callback()
def _group() -> None:
    """Make training data for a drafter."""


@data_app.command()
def synthesize(
    path: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="Where conversations are appended.")],
    conversations: Annotated[int, typer.Option(help="At least so many shall be in the file.")],
    seed: Annotated[int | None, typer.Option(help="Seed of everything drawn.", show_default=False)] = None,
    target: Target = None,
    drafter: Annotated[
        str, typer.Option("--drafter", "-d", help="auto, none, ngram, or a checkpoint directory.")
    ] = "none",
    dtype: Dtype = None,
    device: Device = None,
    recipe: RecipeName = "shipped",
    overrides: Override = None,
) -> None:
    """Let the target write conversations, from nothing but its chat template and short openings.

    They are appended in chunks; the same command goes on where the last one stopped.
    """
    with waiting("Starting ..."):
        from dspark.recipes import find_recipe, override, with_seed
        from dspark.recipes.conversations import Conversations, Writer
    plan = find_recipe(recipe).writing
    plan = with_seed(override(plan, overrides or []), seed)
    file = Conversations.open(path, plan, wanted=conversations)
    llm = open_llm(target=target, drafter=drafter, dtype=dtype, device=device, max_requests=plan.requests_at_a_time)
    writer = Writer(llm, plan)
    with progress_bar("Writing conversations", conversations) as update:
        file.fill(writer, progress=update)
    typer.echo(f"{path} holds {file.count} conversations", err=True)


@data_app.command()
def features(
    conversations: Annotated[list[Path], typer.Argument(metavar="CONVERSATIONS.jsonl", help="What to run.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the new feature store.")],
    target: Target = None,
    dtype: Dtype = None,
    device: Device = None,
    recipe: RecipeName = "shipped",
    overrides: Override = None,
) -> None:
    """Run the target over conversations and store the hidden states that a drafter learns from."""
    with waiting("Starting ..."):
        from dspark.recipes import find_recipe, fitted, override
        from dspark.recipes.features import NewStore
    training = find_recipe(recipe).training
    loaded = open_target(target, dtype, device)
    config = override(fitted(training, loaded), overrides or [])
    new = NewStore.plan(conversations, store, config.drafter)
    typer.echo(new.announcement, err=True)
    with progress_bar("Writing features (tokens)", new.tokens) as update:
        new.write(loaded, progress=update)
    typer.echo(f"{store} holds {new.tokens} tokens", err=True)
