"""Options that several verbs share. None means the default of what is built with it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="Model: smollm2-135m (the default), a Hugging Face directory, a GGUF file or a hub id.",
        show_default=False,
    ),
]
Drafter = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        "-d",
        help="auto (the one shipped for the target; the default), none, ngram, or a checkpoint directory.",
        show_default=False,
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "-p",
        help="How much is drafted and verified: async (what pays), sync (the method's Algorithm 1), fixed (all), "
        "fixed:K, threshold:T, or auto (async with a confidence head, else fixed; the default).",
        show_default=False,
    ),
]
Calibration = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        help="Of the drafter's confidence: auto (sts.json beside the checkpoint; the default), off, or a file.",
        show_default=False,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", help="auto (the default), float32, bfloat16 or float16.", show_default=False),
]
Device = Annotated[str | None, typer.Option("--device", help="auto (the default), cpu, cuda.", show_default=False)]
Prompts = Annotated[
    list[str] | None,
    typer.Option(
        "--prompts",
        metavar="FILE[:N]",
        help="JSONL prompts, the first N of them; without it a few of our own. May be repeated.",
    ),
]
OnePolicy = Annotated[str, typer.Option("--policy", "-p", help="async, sync, fixed, fixed:K or threshold:T.")]
MaxTokens = Annotated[int, typer.Option(help="Length limit of an answer.")]
Concurrency = Annotated[int, typer.Option(help="Answers at a time.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus sampling, in (0, 1].", show_default=False)]
TopK = Annotated[int | None, typer.Option(help="Keep the k likeliest tokens.", show_default=False)]
WritingDrafter = Annotated[str, typer.Option("--drafter", "-d", help="auto, none, ngram, or a checkpoint directory.")]
WritingSeed = Annotated[int | None, typer.Option(help="Seed of everything drawn.", show_default=False)]
Temperatures = Annotated[
    str | None,
    typer.Option(metavar="T:SHARE,...", help="Temperatures of the answers (the recipe's).", show_default=False),
]
Thinking = Annotated[
    bool | None, typer.Option("--thinking/--no-thinking", help="Whether answers start with thoughts (no).")
]
Repeats = Annotated[
    str | None,
    typer.Option(
        metavar="keep|exact|near", help="Which repeated user turns are left out (the recipe's).", show_default=False
    ),
]
RecipeName = Annotated[str, typer.Option("--recipe", help="shipped, or tiny (small numbers, to try everything out).")]
Override = Annotated[
    list[str] | None, typer.Option("--set", help="Change one field of the recipe, NAME=VALUE. May be repeated.")
]


def given(**options: Any) -> dict[str, Any]:
    """Only the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
