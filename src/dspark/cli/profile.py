"""``dspark profile``: what engine steps cost on this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_target
from dspark.cli.lists import integers
from dspark.cli.options import Calibration, Device, Dtype, Target
from dspark.cli.reports import write_report
from dspark.cli.screen import print_markdown, progress_bar, waiting

if TYPE_CHECKING:
    from dspark.drafters import Drafter
    from dspark.engine.profile_plan import ProfilePlan
    from dspark.scheduling import CostModel
    from dspark.target import LoadedTarget


def profile(
    target: Target = None,
    drafter: Annotated[
        str, typer.Option("--drafter", "-d", help="auto, none, ngram, or a checkpoint directory.")
    ] = "auto",
    calibration: Calibration = None,
    dtype: Dtype = None,
    device: Device = None,
    max_rows: Annotated[int, typer.Option(help="Widest step.")] = 512,
    max_requests: Annotated[int, typer.Option(help="Most requests that draft.")] = 64,
    contexts: Annotated[
        str, typer.Option(help="Keys before the rows; several numbers with commas between.")
    ] = "64,512",
    repeats: Annotated[int, typer.Option(help="How often every point is timed.")] = 5,
    seconds: Annotated[float, typer.Option(help="Time it may take, roughly.")] = 60.0,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Keep it for engines on this machine.")] = True,
    sglang: Annotated[
        Path | None,
        typer.Option("--import-sglang", help="Take this SPS table of SGLang instead of measuring.", show_default=False),
    ] = None,
    export: Annotated[
        bool, typer.Option("--export-sglang", help="Also write SGLang's forms into --out: SPS tables, temperatures.")
    ] = False,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for the report, with a plot.")] = None,
) -> None:
    """Measure what engine steps and drafting cost, through the engine's own path; policies async and sync plan with it.

    Engines do this by themselves the first time. Doing it here, on a quiet machine, takes longer and is more exact.
    """
    with waiting("Starting ..."):
        from dspark import evaluation as ev
        from dspark.core import InputError
        from dspark.engine.choice import check_drafter, choose_drafter
        from dspark.engine.costs import keep_costs
        from dspark.engine.profile_plan import ProfilePlan
        from dspark.scheduling import check_profile
    plan = ProfilePlan(
        max_rows=max_rows,
        max_requests=max_requests,
        contexts=integers("--contexts", contexts),
        repeats=repeats,
        seconds=seconds,
    )
    if export and folder is None:
        raise InputError("--export-sglang writes into --out; name a folder")
    check_drafter(drafter)
    ev.check_folder(folder)
    loaded = open_target(target, dtype, device)
    with waiting("Loading the drafter ..."):
        made, _ = choose_drafter(drafter, loaded.target, loaded.name)
    model = _measure(loaded, made, plan) if sglang is None else _imported(sglang, loaded, made)
    page = ev.cost_markdown(model, check_profile(model))
    print_markdown(page)
    if folder is not None:
        draw = partial(ev.plot_costs, model, folder / "costs.png")
        write_report(folder, model.to_json(), page, draw, undrawn="no plot: it needs")
    if export and folder is not None:
        _export(model, loaded, made, calibration or "auto", folder)
    if keep:
        typer.echo(keep_costs(model)[0], err=True)


def _measure(loaded: LoadedTarget, drafter: Drafter, plan: ProfilePlan) -> CostModel:
    from dspark.engine.costs import profile_identity
    from dspark.engine.profiling import count_points, measure_costs

    with progress_bar("Measuring", count_points(drafter, plan)) as update:
        return measure_costs(loaded.target, drafter, profile_identity(loaded, drafter), plan, tell=update)


def _imported(file: Path, loaded: LoadedTarget, drafter: Drafter) -> CostModel:
    from dspark.core import InputError
    from dspark.engine.costs import profile_identity
    from dspark.scheduling import from_sglang

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the SPS table {file}: {error}") from None
    return from_sglang(text, profile_identity(loaded, drafter), file)


def _export(model: CostModel, loaded: LoadedTarget, drafter: Drafter, calibration: str, folder: Path) -> None:
    """SPS tables in both forms, and the temperatures of the drafter if it has any."""
    from dspark.calibration.sglang_temperatures import to_sglang_temperatures
    from dspark.core.whole_file import write_whole
    from dspark.engine.calibrating import choose_calibration
    from dspark.scheduling import to_sglang, to_sglang_plain

    context, block = float(model.verify.depths[0]), drafter.block_size
    write_whole(folder / "sps.json", to_sglang(model, context=context, block=block))
    widths = model.verify.widths
    write_whole(folder / "sps-plain.json", to_sglang_plain(model, widths, context=context, block=block))
    found = choose_calibration(calibration, drafter)
    if found.calibration is not None:
        facts = found.artefact
        text = to_sglang_temperatures(
            found.calibration,
            dataset="" if facts is None else facts.dataset,
            num_samples=0 if facts is None else facts.num_samples,
        )
        write_whole(folder / "sts.json", text)
