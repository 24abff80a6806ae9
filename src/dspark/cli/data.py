"""``dspark data``: conversations of the target, a look at them, and its features on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.data_regenerate import regenerate
from dspark.cli.data_stats import stats
from dspark.cli.data_synthesize import synthesize
from dspark.cli.options import Device, Dtype, Override, RecipeName, Target
from dspark.cli.screen import progress_bar, waiting

data_app = typer.Typer(help="Make training data for a drafter.", no_args_is_help=True)


@data_app.callback()
def _group() -> None:
    """Make training data for a drafter."""


data_app.command()(synthesize)
data_app.command()(regenerate)
data_app.command()(stats)


@data_app.command()
def features(
    *,
    conversations: Annotated[
        list[Path] | None, typer.Argument(metavar="CONVERSATIONS.jsonl", help="What to run.", show_default=False)
    ] = None,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the feature store.")],
    store_as: Annotated[
        str, typer.Option(help="bf16, or fp8: about half the size, features off by up to 6 %.")
    ] = "bf16",
    shard_mb: Annotated[float, typer.Option(help="Size of a file of the store in MB.")] = 256,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the store with its checksums.")] = False,
    target: Target = None,
    dtype: Dtype = None,
    device: Device = None,
    recipe: RecipeName = "shipped",
    overrides: Override = None,
) -> None:
    """Run the target over conversations and store the hidden states that a drafter learns from.

    Training does not need a store: it can run the target itself. The store's size is stated before anything is
    written, and the same command goes on where an interrupted one stopped. With --verify and no conversations, a store
    that is there is checked.
    """
    with waiting("Starting ..."):
        from dspark.recipes import find_recipe, fitted, override
        from dspark.recipes.features import NewStore, StorePlan, stored_bytes, verify_words
    if conversations or not verify:
        plan = StorePlan.named(store_as, shard_mb)
        training = find_recipe(recipe).training
        loaded = open_target(target, dtype, device)
        config = override(fitted(training, loaded), overrides or [])
        new = NewStore.plan(conversations or [], store, config.drafter, loaded.name, plan)
        typer.echo(new.announcement, err=True)
        with progress_bar("Writing features (tokens)", new.corpus.tokens) as update:
            new.write(loaded, config.drafter, progress=update)
        typer.echo(f"{store} holds {new.corpus.tokens} tokens", err=True)
    if verify:
        with progress_bar("Verifying (bytes)", stored_bytes(store)) as update:
            found = verify_words(store, update)
        typer.echo(found, err=True)
