"""``dspark check simulator``: what is simulated against what is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import integers
from dspark.cli.options import Device, Dtype, Prompts, Target
from dspark.cli.screen import note, print_markdown, progress_bar, waiting


def check_simulator(
    prompts: Prompts = None,
    target: Target = None,
    drafter: Annotated[str, typer.Option("--drafter", "-d", help="auto, ngram, or a checkpoint directory.")] = "auto",
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", help="Policies; without it fixed:0, fixed:2, fixed and async. May be repeated."),
    ] = None,
    dtype: Dtype = None,
    device: Device = None,
    concurrency: Annotated[str, typer.Option(help="Answers at a time; numbers with commas between.")] = "1,8,32",
    max_tokens: Annotated[int, typer.Option(help="Length limit of an answer.")] = 64,
    repeats: Annotated[int, typer.Option(help="Real runs of each; the middle one counts.")] = 3,
    tolerance: Annotated[float, typer.Option(help="Fails if throughput is off by more than this share.")] = 0.1,
    costs: Annotated[
        Path | None, typer.Option(help="A profile; without it one is measured now.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for report.json, report.md, answers.jsonl and profile.json."),
    ] = None,
) -> None:
    """The simulator against the real engine: the same greedy answers, with the profile of this machine.

    Wants a quiet machine. answers.jsonl and profile.json are what dspark simulate reads.
    """
    with waiting("Starting ..."):
        from dspark import evaluation as ev
        from dspark import simulation as sim
        from dspark.core import DsparkError, InputError
        from dspark.scheduling import read_profile
    given = {} if policy is None else {"policies": tuple(policy)}
    plan = sim.ValidationPlan(
        concurrency=integers("--concurrency", concurrency), max_tokens=max_tokens, repeats=repeats, **given
    )
    sets = ev.load_prompt_sets(prompts) if prompts else ev.builtin_prompt_sets()
    ev.check_folder(folder)
    known = None if costs is None else read_profile(costs)
    loaded = open_target(target, dtype, device)
    made = ev.make_arm(loaded, drafter).drafter
    if not made.block_size:
        raise InputError(f"drafter {drafter!r} drafts nothing for {loaded.name}; give a checkpoint directory")
    ids = [tokens for entry in sets for tokens in entry.token_ids(loaded.tokenizer)]
    with progress_bar("Recording", len(ids)) as update:
        answers = sim.record(loaded, made, ids, max_tokens, progress=update)
    with waiting("Profiling ..."):
        model = known or sim.profile(loaded, made, ids, plan)
    note([model.note])
    turns = len(plan.policies) * len(plan.concurrency) * plan.repeats
    with progress_bar("Comparing", turns) as update:
        rows = tuple(sim.validate(loaded, made, ids, answers, model, plan, progress=update))
    report = sim.ValidationReport(
        settings=(
            ("target", f"{loaded.name}, {loaded.target.dtype}"),
            ("drafter", made.name),
            ("machine", model.identity.machine),
            ("costs", model.note),
            ("answers", f"{len(ids)}, greedy, at most {max_tokens} tokens, middle one of {repeats} runs"),
        ),
        rows=rows,
    )
    print_markdown(report.to_markdown())
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write = partial(_write, folder)
        write("report.json", report.to_json())
        write("report.md", report.to_markdown())
        write("profile.json", model.to_json())
        sim.write_recordings(folder / "answers.jsonl", answers)
        typer.echo(f"written to {folder}", err=True)
    worst = report.worst
    if abs(worst.error) > tolerance:
        raise DsparkError(
            f"simulated throughput of {worst.policy!r}, {worst.concurrency} at a time, is off by {worst.error:+.1%}, "
            f"expected at most {tolerance:.0%}; the profile is off by {worst.cost_ratio - 1:+.1%} on the steps that ran"
        )


def _write(folder: Path, name: str, text: str) -> None:
    from dspark.core.whole_file import write_whole

    write_whole(folder / name, text)
