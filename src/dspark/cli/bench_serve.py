"""``dspark bench serve``: serving under load, with every policy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import integers
from dspark.cli.options import Device, Dtype, Prompts, Target
from dspark.cli.reports import write_report
from dspark.cli.screen import note, print_markdown, progress_bar, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.evaluation import PromptSet
    from dspark.evaluation.load import Budgets, LoadArm, LoadPlan, LoadTest, Segment
    from dspark.target import LoadedTarget


def bench_serve(
    prompts: Prompts = None,
    target: Target = None,
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            "--drafter",
            "-d",
            metavar="[NAME=]DRAFTER",
            help="auto, ngram, a checkpoint directory, or random[:DIR] (its configuration with random weights, with "
            "the policy async only). May be repeated; without it auto and random.",
        ),
    ] = None,
    lengths: Annotated[
        str, typer.Option(help="Fixed verify lengths: numbers with commas between, or all. Whole blocks always are.")
    ] = "1,2,4",
    policies: Annotated[
        str, typer.Option(help="Other policies, with commas between; none for none.")
    ] = "threshold:0.5,sync,async,oracle",
    dtype: Dtype = None,
    device: Device = None,
    concurrency: Annotated[str, typer.Option(help="Users of the closed loops.")] = "1,2,4,8,16,32,64",
    arrivals: Annotated[str, typer.Option(help="Open loops: poisson, ramp, burst, with commas between; or none.")] = (
        "ramp"
    ),
    each: Annotated[
        bool, typer.Option("--each/--no-each", help="Also the prompts of every file by themselves.")
    ] = False,
    mixed: Annotated[bool, typer.Option("--mixed/--no-mixed", help="The prompts of all files, mixed.")] = True,
    max_tokens: Annotated[int, typer.Option(help="Length limit of an answer.")] = 64,
    seconds_per_point: Annotated[float, typer.Option(help="Seconds of each closed loop and arm, in all.")] = 6.0,
    repeats: Annotated[int, typer.Option(help="Segments that these seconds are cut into.")] = 3,
    open_seconds: Annotated[float, typer.Option(help="Seconds of arrivals in each segment of an open loop.")] = 10.0,
    first_token: Annotated[float, typer.Option(help="Latency target: seconds to the first token.")] = 2.0,
    token: Annotated[float, typer.Option(help="Latency target: seconds for each further token.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Of the order of prompts, and of arrivals.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for report.json, report.md and the two pictures.")
    ] = None,
) -> None:
    """Serving under load: plain decoding, fixed lengths, threshold, sync, async, oracle, in turn, greedy.

    Closed loops with so many users at a time, and open loops whose requests come when they come. With its defaults a
    run takes about 20 minutes on two cores. Ctrl-C ends it with a report on what all arms have finished by then.
    docs/benchmarks.md says how to read the result.
    """
    with waiting("Starting ..."):
        from dspark import evaluation as ev
        from dspark.evaluation import load
    plan = load.LoadPlan(
        concurrency=integers("--concurrency", concurrency),
        arrivals=_names(arrivals),
        mixed=mixed,
        each=each,
        max_tokens=max_tokens,
        seconds=seconds_per_point,
        repeats=repeats,
        open_seconds=open_seconds,
        goal=load.LatencyTarget(first_token=first_token, token=token),
        seed=seed,
    )
    asked = load.check_policies(_names(policies))
    chosen = None if lengths.strip() == "all" else integers("--lengths", lengths)
    specs = ev.read_drafters(drafter or ["auto", "random"])
    sets = ev.load_prompt_sets(prompts) if prompts else ev.builtin_prompt_sets()
    ev.check_folder(folder)
    loaded = open_target(target, dtype, device)
    note(loaded.notes)
    with waiting("Loading drafters ..."):
        arms = load.load_arms(loaded, specs, chosen, asked)
    test, notes = _prepare(loaded, sets, arms, plan)
    with waiting("Trying out plain decoding at every load ..."):
        budgets = test.budgets()
    note([f"{len(test.points)} loads, {len(arms)} arms: about {test.seconds(budgets) / 60:.0f} minutes"])
    segments, whole = _run(test, budgets)
    if not segments:
        raise KeyboardInterrupt("interrupted before all arms had finished the first load")
    facts = [entry.facts for entry in arms]
    report = load.make_load_report(
        segments, facts, plan, arms[0].arm, capacity=budgets.capacity, complete=whole, notes=notes
    )
    page = load.load_markdown(report)
    print_markdown(page)
    if folder is not None:
        draw = partial(load.plot_load, report, folder)
        write_report(folder, report.to_json(), page, draw, undrawn="no pictures: they need")
    if not whole:
        raise KeyboardInterrupt("interrupted; the report is about what was finished")


def _names(text: str) -> tuple[str, ...]:
    """Names with commas between; ``none`` for none."""
    return () if text.strip() == "none" else tuple(name.strip() for name in text.split(","))


def _prepare(
    loaded: LoadedTarget, sets: Sequence[PromptSet], arms: Sequence[LoadArm], plan: LoadPlan
) -> tuple[LoadTest, tuple[str, ...]]:
    """Record what is known beforehand, and put the arms to the start."""
    from dspark.evaluation import load

    domains = [(entry.domain, entry.token_ids(loaded.tokenizer)) for entry in sets]
    traffics = load.traffics(domains, each=plan.each, mixed=plan.mixed)
    prompts = list(dict.fromkeys(prompt for traffic in traffics for prompt in traffic.prompts))
    with progress_bar("Recording", load.num_recorded(arms, prompts)) as update:
        known = load.record(arms, prompts, plan.max_tokens, progress=update)
    note(known.notes)
    return load.LoadTest(load.contestants(arms, known), traffics, plan, known.texts, load.SkippingClock), known.notes


def _run(test: LoadTest, budgets: Budgets) -> tuple[list[Segment], bool]:
    """The segments that all arms finished, and whether those are all."""
    segments: list[Segment] = []
    try:
        with progress_bar("Measuring (s)", round(test.seconds(budgets))) as update:
            for group in test.run(budgets, update):
                segments.extend(group)
    except KeyboardInterrupt:
        return segments, False
    return segments, True
