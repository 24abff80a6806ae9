"""``dspark eval``: how good drafters are, and which is better."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import numbers
from dspark.cli.options import Concurrency, Device, Dtype, MaxTokens, OnePolicy, Prompts, Target
from dspark.cli.reports import write_report
from dspark.cli.screen import note, print_markdown, progress_bar, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.evaluation import Arm, EvalPlan, PromptSet, Turn
    from dspark.target import LoadedTarget


def evaluate(
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter",
            "-d",
            metavar="[NAME=]DRAFTER",
            help="auto (the default), ngram, dflash, or a checkpoint directory, and what reports call it. May be "
            "repeated: all answer the same prompts in turn.",
        ),
    ] = None,
    prompts: Prompts = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            "--benchmark",
            "-b",
            metavar="NAME[:N]",
            help="gsm8k, humaneval or mt-bench, the first N prompts of it. May be repeated.",
        ),
    ] = None,
    benchmarks_folder: Annotated[
        Path | None,
        typer.Option(help="Folder that holds gsm8k.jsonl and so on; without it they are read from the hub."),
    ] = None,
    target: Target = None,
    policy: OnePolicy = "fixed",
    dtype: Dtype = None,
    device: Device = None,
    temperatures: Annotated[str, typer.Option("--temperatures", help="Numbers with commas between.")] = "0,1",
    max_tokens: MaxTokens = 256,
    concurrency: Concurrency = 8,
    seed: Annotated[int, typer.Option(help="Seed of the sampled answers.")] = 0,
    baseline: Annotated[
        str | None,
        typer.Option(help="Name of the drafter that the others are compared with; the first one.", show_default=False),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain/--no-plain", help="Also plain decoding, to compare speed.")] = True,
    sweep_live: Annotated[
        bool, typer.Option("--sweep-live", help="Also run every confidence threshold; takes ten times as long.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for report.json, report.md and the plots.")
    ] = None,
) -> None:
    """Acceptance, speed and confidence of drafters on the engine, side by side.

    Ctrl-C ends the run with a report on what all drafters have answered by then.
    """
    with waiting("Starting ..."):
        from dspark import evaluation as ev
        from dspark.scheduling import policy_name
    plan = ev.EvalPlan(
        max_tokens=max_tokens,
        temperatures=numbers("--temperatures", temperatures),
        concurrency=concurrency,
        seed=seed,
    )
    policy_name(policy)
    specs = ev.read_drafters(drafter or ["auto"])
    sets = _sets(prompts, benchmark, benchmarks_folder)
    ev.check_folder(folder)
    loaded = open_target(target, dtype, device)
    note(loaded.notes)
    with waiting("Loading drafters ..."):
        arms = ev.make_arms(loaded, specs, policy, plain=plain)
    base = ev.check_baseline(baseline, arms)
    live = ev.live_arms(arms) if sweep_live else ()
    turns, whole = _run([arm.arm for arm in arms], sets, plan, loaded, "Evaluating")
    swept, swept_whole = _run([arm.arm.arm for arm in live], sets, plan, loaded, "Sweeping") if whole else ([], False)
    if not turns:
        raise KeyboardInterrupt("interrupted before all drafters had answered the first prompts")
    sweeps = ev.live_sweeps(swept, live, [entry.domain for entry in sets], plan)
    report = ev.make_eval_report(turns, arms, sets, plan, loaded, baseline=base, live=sweeps)
    page = ev.eval_markdown(report)
    print_markdown(page)
    if folder is not None:
        draw = partial(ev.plot_evaluation, report, folder)
        write_report(folder, report.to_json(), page, draw, undrawn="no plots: they need")
    if not (whole and swept_whole):
        raise KeyboardInterrupt("interrupted; the report is about what was finished")


def _sets(
    prompts: list[str] | None, benchmarks: list[str] | None, benchmarks_folder: Path | None
) -> tuple[PromptSet, ...]:
    from dspark import evaluation as ev

    if not prompts and not benchmarks:
        return ev.builtin_prompt_sets()
    with waiting("Reading prompts ..."):
        named = ev.load_benchmarks(benchmarks or (), benchmarks_folder)
    return ev.check_sets([*ev.load_prompt_sets(prompts or ()), *named])


def _run(
    arms: Sequence[Arm], sets: Sequence[PromptSet], plan: EvalPlan, loaded: LoadedTarget, what: str
) -> tuple[list[Turn], bool]:
    """The turns that were finished, and whether those are all."""
    from dspark import evaluation as ev

    turns: list[Turn] = []
    if not arms:
        return turns, True
    try:
        with progress_bar(what, ev.count_answers(arms, sets, plan)) as update:
            for group in ev.measure(arms, sets, plan, loaded, progress=update):
                turns.extend(group)
    except KeyboardInterrupt:
        return turns, False
    return turns, True
