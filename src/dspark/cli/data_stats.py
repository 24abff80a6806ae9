"""``dspark data stats``: what is in files of conversations."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark.cli.options import Target
from dspark.cli.screen import out, waiting

if TYPE_CHECKING:
    from dspark.data.stats import Stats
    from dspark.recipes.samples import Sample


def stats(
    conversations: Annotated[list[Path], typer.Argument(metavar="CONVERSATIONS.jsonl", help="What to look at.")],
    target: Target = None,
    samples: Annotated[int, typer.Option(help="So many conversations are shown, learnt tokens in colour.")] = 0,
    seed: Annotated[int, typer.Option(help="Which ones are shown.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Count conversations, lengths, what is learnt, which tokens a draft vocabulary has to hold, duplicates."""
    with waiting("Reading ..."):
        from dspark.recipes.samples import look_at

        look = look_at(conversations, target=target, samples=samples, seed=seed)
    if as_json:
        shown = [{"name": sample.name, "pieces": sample.pieces} for sample in look.samples]
        print(json.dumps({"target": look.target, **look.stats.as_dict(), "samples": shown}, ensure_ascii=False))
        return
    _print_stats(look.stats)
    for remark in look.remarks:
        out().print(remark, style="dim", soft_wrap=True)
    for sample in look.samples:
        _print_sample(sample)


def _print_stats(found: Stats) -> None:
    from rich.table import Table

    console = out()
    heads = ("conversations", "complete", "answers", "tokens", "learnt", "learnt share")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for head in heads:
        table.add_column(head, justify="right")
    for name, group in _rows(found):
        numbers = (group.conversations, group.complete, group.answers, group.tokens, group.learnt)
        share = group.learnt / group.tokens if group.tokens else 0.0
        table.add_row(name, *(f"{number:,}" for number in numbers), f"{share:.1%}")
    console.print(table)
    say, values = partial(console.print, soft_wrap=True), found.as_dict()
    for name, what in (("conversation_tokens", "tokens per conversation"), ("answer_tokens", "tokens per answer")):
        say(f"{what}: " + ", ".join(f"{key} {value:g}" for key, value in values[name].items()))
    coverage = ", ".join(f"{size:,}: {share:.2%}" for size, share in found.coverage().items())
    say(f"learnt tokens that the most frequent V tokens are: {coverage or 'nothing is learnt'}")
    doubles = ", ".join(f"{count} {kind}" for kind, count in found.duplicates.items())
    say(f"prompts that came before: {doubles}")
    if found.without_answer:
        say(f"conversations of which nothing is learnt: {found.without_answer}")


def _rows(found: Stats) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("all", found.total)]
    for kind, groups in found.groups.items():
        rows += [(f"{kind} {name}", group) for name, group in sorted(groups.items())]
    return rows


def _print_sample(sample: Sample) -> None:
    """A conversation; on a terminal learnt text is green, elsewhere it stands between brackets."""
    from rich.text import Text

    console = out()
    console.print(f"\n--- {sample.name} ---", style="bold")
    text = Text()
    for piece, learnt in sample.pieces:
        shown = piece if console.is_terminal or not learnt else f"⟦{piece}⟧"
        text.append(shown, style="green" if learnt else "dim")
    console.print(text, soft_wrap=True)
