"""``dspark check``: correctness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import integers
from dspark.cli.options import Device, MaxTokens, OnePolicy, Prompts, Target
from dspark.cli.screen import progress_bar, waiting

if TYPE_CHECKING:
    from dspark.evaluation import Audit, AuditPart

check_app = typer.Typer(help="Check that results are right.", no_args_is_help=True)


@check_app.callback()
def _group() -> None:
    """Check that results are right."""


@check_app.command()
def lossless(
    prompts: Prompts = None,
    target: Target = None,
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter",
            "-d",
            help="ngram, auto, dflash, or a checkpoint directory; without it all there are. May be repeated.",
        ),
    ] = None,
    policy: OnePolicy = "fixed",
    dtype: Annotated[str, typer.Option(help="In anything but float32, near ties are everywhere.")] = "float32",
    device: Device = None,
    max_tokens: MaxTokens = 128,
    batch: Annotated[str, typer.Option(help="Answers at a time; several numbers with commas between.")] = "1,8",
) -> None:
    """Greedy texts of every drafter against plain decoding, token by token.

    Each part of the result is printed as soon as it is known, every difference with the logit margin at its first
    position; Ctrl-C keeps what is there. Fails if a margin is 1e-4 or more.

    The drafter 'dflash' is the shipped DSpark drafter without its sequential head.
    """
    with waiting("Starting ..."):
        from dspark import evaluation as ev
        from dspark.evaluation.audit_report import part_lines, summary_lines
    plan = ev.AuditPlan(max_tokens=max_tokens, batch_sizes=integers("--batch", batch))
    sets = ev.load_prompt_sets(prompts) if prompts else ev.builtin_prompt_sets()
    ev.check_drafters(drafter or ())
    loaded = open_target(target, dtype, device)
    with waiting("Loading drafters ..."):
        arms = [ev.audit_arm(loaded, name, policy) for name in drafter or ev.audit_drafters(loaded)]
    ev.check_names([arm.name for arm in arms])
    parts: list[AuditPart] = []
    try:
        with progress_bar("Comparing", ev.count_texts(arms, sets, plan)) as update:
            for part in ev.audit_parts(ev.plain_arm(loaded), arms, sets, plan, progress=update):
                parts.append(part)
                _print(part_lines(part))
    except KeyboardInterrupt:
        _print(summary_lines(ev.Audit.of(parts)))
        raise KeyboardInterrupt("interrupted; the figures are those of the parts that were finished") from None
    _finish(ev.Audit.of(parts))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _finish(audit: Audit) -> None:
    from dspark.core import DsparkError
    from dspark.evaluation.audit_report import summary_lines

    _print(summary_lines(audit))
    if not audit.passed:
        raise DsparkError(f"{len(audit.faults)} differences are no near ties: decoding with drafts is not lossless")
