"""``dspark check``: correctness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import integers
from dspark.cli.options import Device, Prompts, Target
from dspark.cli.screen import progress_bar, waiting

if TYPE_CHECKING:
    from dspark.evaluation import Audit

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
    policy: Annotated[str, typer.Option("--policy", "-p", help="fixed, fixed:K or threshold:T.")] = "fixed",
    dtype: Annotated[str, typer.Option(help="In anything but float32, near ties are everywhere.")] = "float32",
    device: Device = None,
    max_tokens: Annotated[int, typer.Option(help="Length limit of an answer.")] = 128,
    batch: Annotated[str, typer.Option(help="Answers at a time; several numbers with commas between.")] = "1,8",
) -> None:
    """Greedy texts of every drafter against plain decoding, token by token.

    Every difference is printed with the logit margin at its first position. Fails if a margin is 1e-4 or more.

    The drafter 'dflash' is the shipped DSpark drafter without its sequential head.
    """
    with waiting("Starting ..."):
        from dspark import evaluation as ev
    plan = ev.AuditPlan(max_tokens=max_tokens, batch_sizes=integers("--batch", batch))
    sets = ev.load_prompt_sets(prompts) if prompts else ev.builtin_prompt_sets()
    loaded = open_target(target, dtype, device)
    with waiting("Loading drafters ..."):
        arms = [ev.audit_arm(loaded, name, policy) for name in drafter or ev.audit_drafters(loaded)]
    with progress_bar("Comparing", ev.count_texts(arms, sets, plan)) as update:
        audit = ev.audit_greedy(ev.plain_arm(loaded), arms, sets, plan, progress=update)
    _print(audit)


def _print(audit: Audit) -> None:
    from dspark.core import DsparkError
    from dspark.evaluation.audit_report import audit_lines

    for line in audit_lines(audit):
        print(line)
    if not audit.passed:
        raise DsparkError(f"{len(audit.faults)} differences are no near ties: decoding with drafts is not lossless")
