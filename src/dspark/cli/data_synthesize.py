"""``dspark data synthesize``: conversations that the target writes itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_llm
from dspark.cli.options import (
    Device,
    Dtype,
    Override,
    RecipeName,
    Repeats,
    Target,
    Temperatures,
    Thinking,
    WritingDrafter,
    WritingSeed,
)
from dspark.cli.screen import progress_bar, waiting

if TYPE_CHECKING:
    from dspark.recipes.conversations import Conversations
    from dspark.recipes.recipe import WritingPlan

SHARE = re.compile(r"\s*(\d+\.?\d*|\.\d+):(.*)", re.DOTALL)


def synthesize(
    path: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="Where conversations are appended.")],
    conversations: Annotated[
        int | None, typer.Option(help="At least so many shall be in the file.", show_default=False)
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="At least so many tokens, instead.", show_default=False)] = None,
    seed: WritingSeed = None,
    target: Target = None,
    drafter: WritingDrafter = "none",
    dtype: Dtype = None,
    device: Device = None,
    domains: Annotated[
        str | None,
        typer.Option(metavar="NAME:SHARE,...", help="chat, math, code (the recipe's).", show_default=False),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(metavar="CODE:SHARE,...", help="Of openings: en, de, es, fr, pt, zh (en).", show_default=False),
    ] = None,
    temperatures: Temperatures = None,
    system: Annotated[
        list[str] | None,
        typer.Option(metavar="[SHARE:]TEXT", help="System prompt; without text the template's own. May be repeated."),
    ] = None,
    thinking: Thinking = None,
    duplicates: Repeats = None,
    recipe: RecipeName = "shipped",
    overrides: Override = None,
) -> None:
    """Let the target write conversations, from nothing but its chat template and short openings.

    They are appended in chunks; the same command goes on where the last one stopped.
    """
    with waiting("Starting ..."):
        from dspark.recipes import find_recipe, override, with_seed
        from dspark.recipes.conversations import Conversations, Writer
    given = {
        "domains": domains, "languages": languages, "temperatures": temperatures, "duplicates": duplicates,
        "thinking": None if thinking is None else str(thinking),
    }  # fmt: skip
    assignments = [f"synthesis.{name}={value}" for name, value in given.items() if value is not None]
    plan = override(find_recipe(recipe).writing, [*(overrides or []), *assignments])
    plan = _with_systems(with_seed(plan, seed), system or [])
    file = Conversations.open(path, plan, wanted=conversations, wanted_tokens=tokens)
    llm = open_llm(target=target, drafter=drafter, dtype=dtype, device=device, max_requests=plan.requests_at_a_time)
    writer = Writer(llm, plan)
    with progress_bar("Writing conversations", conversations or tokens) as update:
        file.fill(writer, progress=lambda file: update(*_progress(file, conversations is not None)))
    typer.echo(f"{path} holds {file.count} conversations, {file.tokens} tokens", err=True)


def shares(texts: list[str]) -> dict[str, float]:
    """``[SHARE:]TEXT`` entries as texts with shares; 1 where none is given."""
    found: dict[str, float] = {}
    for text in texts:
        match = SHARE.fullmatch(text)
        found[match[2].strip() if match else text.strip()] = float(match[1]) if match else 1.0
    return found


def _with_systems(plan: WritingPlan, texts: list[str]) -> WritingPlan:
    from dataclasses import replace

    return replace(plan, synthesis=replace(plan.synthesis, systems=shares(texts))) if texts else plan


def _progress(file: Conversations, in_conversations: bool) -> tuple[int, str]:
    if in_conversations:
        return file.count, f"{file.tokens} tokens, {file.next} begun"
    return file.tokens, f"{file.count} conversations, {file.next} begun"
