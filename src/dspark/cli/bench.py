"""``dspark bench``: speed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import integers
from dspark.cli.options import Calibration, Device, Dtype, MaxTokens, Prompts, Target
from dspark.cli.reports import write_report
from dspark.cli.screen import note, print_markdown, progress_bar, waiting

if TYPE_CHECKING:
    from dspark.evaluation.decode import AnyArm
    from dspark.target import LoadedTarget

bench_app = typer.Typer(help="Measure speed.", no_args_is_help=True)


@bench_app.callback()
def _group() -> None:
    """Measure speed."""


@bench_app.command()
def decode(
    prompts: Prompts = None,
    target: Target = None,
    drafter: Annotated[str, typer.Option("--drafter", "-d", help="auto, none, or a checkpoint directory.")] = "auto",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", help="Policy of the drafter; without it fixed and threshold:0.5. May be repeated."
        ),
    ] = None,
    calibration: Calibration = None,
    dtype: Dtype = None,
    device: Device = None,
    max_tokens: MaxTokens = 128,
    repeats: Annotated[int, typer.Option(help="How often everything is run.")] = 3,
    concurrency: Annotated[str, typer.Option(help="Answers at a time; several numbers with commas between.")] = "1",
    ngram: Annotated[bool, typer.Option("--ngram/--no-ngram", help="Also n-gram lookup.")] = True,
    transformers: Annotated[
        bool, typer.Option("--transformers/--no-transformers", help="Also generate() of transformers.")
    ] = True,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for report.json, report.md and report.png.")
    ] = None,
) -> None:
    """Decoding speed: plain, with drafts, and by transformers, taking turns on the same prompts, greedy."""
    with waiting("Starting ..."):
        from dspark import evaluation as ev
        from dspark.engine.calibrating import check_calibration
    plan = ev.DecodePlan(max_tokens=max_tokens, repeats=repeats, concurrency=integers("--concurrency", concurrency))
    sets = ev.load_prompt_sets(prompts) if prompts else ev.builtin_prompt_sets()
    ev.check_folder(folder)
    ev.check_drafters((drafter,))
    check_calibration(calibration or "auto")
    loaded = open_target(target, dtype, device)
    note(loaded.notes)
    with waiting("Loading drafters ..."):
        arms = _arms(loaded, drafter, policy, calibration or "auto", ngram=ngram, transformers=transformers)
    with progress_bar("Measuring", ev.count_turns(arms, sets, plan)) as update:
        measured = ev.measure_decoding(arms, sets, plan, loaded, progress=update)
    report = ev.make_report(measured, arms, loaded, plan, ev.this_machine())
    print_markdown(report.to_markdown())
    if folder is not None:
        draw = partial(ev.plot_report, report, folder / "report.png")
        write_report(folder, report.to_json(), report.to_markdown(), draw, undrawn="no report.png: that needs")


def _arms(
    loaded: LoadedTarget,
    drafter: str,
    policies: list[str] | None,
    calibration: str,
    *,
    ngram: bool,
    transformers: bool,
) -> list[AnyArm]:
    from dspark import evaluation as ev

    arms: list[AnyArm] = [ev.plain_arm(loaded), *ev.drafter_arms(loaded, drafter, policies, calibration)]
    if len(arms) == 1:
        note([f"no drafter for {loaded.name}: measuring without one (give one with --drafter)"])
    if ngram:
        arms.append(ev.make_arm(loaded, "ngram"))
    if transformers:
        arms.append(ev.TransformersArm(loaded))
    return arms
