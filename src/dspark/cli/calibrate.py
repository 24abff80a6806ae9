"""``dspark calibrate``: make probabilities of a drafter's confidences."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import numbers
from dspark.cli.options import Concurrency, Device, Dtype, MaxTokens, Prompts, Target
from dspark.cli.screen import print_markdown, progress_bar, waiting

if TYPE_CHECKING:
    from dspark.drafters import Drafter
    from dspark.evaluation import PromptSet
    from dspark.target import LoadedTarget


def calibrate(
    prompts: Prompts = None,
    target: Target = None,
    drafter: Annotated[
        str, typer.Option("--drafter", "-d", help="Checkpoint directory, or auto (the one shipped for the target).")
    ] = "auto",
    dtype: Dtype = None,
    device: Device = None,
    temperature: Annotated[str, typer.Option(help="Of sampling; several numbers with commas between.")] = "1",
    samples: Annotated[int, typer.Option(help="Answers per prompt and temperature.")] = 4,
    max_tokens: MaxTokens = 256,
    concurrency: Concurrency = 8,
    seed: Annotated[int, typer.Option(help="Of the samples and of the split.")] = 0,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Also shift the confidences, for a drafter that is wrong on average.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for sts.json and the report; without it the checkpoint's.", show_default=False
        ),
    ] = None,
) -> None:
    """Fit one temperature per block position, so that the drafter's confidences are probabilities.

    Answers the prompts (use some that the drafter was not trained on) with every draft verified, fits on half of the
    prompts and reports on the other half. The result, sts.json, is used by whoever loads the checkpoint it lies beside.
    """
    with waiting("Starting ..."):
        from dspark.calibration import ARTEFACT_FILE, save_artefact
        from dspark.engine.choice import check_drafter
        from dspark.evaluation import builtin_prompt_sets, check_folder, load_prompt_sets
        from dspark.recipes import calibration as recipe
        from dspark.recipes.calibration_report import CalibrationReport, write_report
    plan = recipe.CalibrationPlan(
        temperatures=numbers("--temperature", temperature),
        samples=samples,
        max_tokens=max_tokens,
        concurrency=concurrency,
        seed=seed,
        offsets=offsets,
    )
    sets = load_prompt_sets(prompts) if prompts else builtin_prompt_sets()
    check_drafter(drafter)
    check_folder(folder)
    loaded = open_target(target, dtype, device)
    made = _load(drafter, loaded)
    place = recipe.check_calibratable(made)
    out = folder or place
    _check_writable(out)
    with progress_bar("Recording", recipe.count_answers(sets, plan)) as update:
        recording = recipe.record(loaded, made, sets, plan, progress=update)
    found = recipe.calibrate(recording, plan)
    artefact = recipe.artefact_of(
        found, folder=place, dataset=_dataset(sets, builtin=not prompts), target=loaded.name, plan=plan
    )
    report = CalibrationReport.of(recording, found, artefact, drafter=place.name, plan=plan)
    print_markdown(report.to_markdown())
    out.mkdir(parents=True, exist_ok=True)
    written = write_report(report, out)
    save_artefact(out / ARTEFACT_FILE, artefact)
    names = ", ".join([ARTEFACT_FILE, *(path.name for path in written)])
    typer.echo(f"written to {out}: {names}", err=True)


def _load(drafter: str, loaded: LoadedTarget) -> Drafter:
    from dspark.engine.choice import choose_drafter

    with waiting("Loading the drafter ..."):
        return choose_drafter(drafter, loaded.target, loaded.name)[0]


def _check_writable(folder: Path) -> None:
    """See before a long run whether its results can be written."""
    from dspark.core import InputError

    if folder.exists() and not os.access(folder, os.W_OK):
        raise InputError(f"{folder} cannot be written to; name another folder with --out")


def _dataset(sets: tuple[PromptSet, ...], *, builtin: bool) -> str:
    names = ", ".join(entry.domain for entry in sets)
    return f"builtin prompts: {names}" if builtin else names
