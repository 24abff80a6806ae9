"""``dspark info``: machine, model, drafter, memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_llm
from dspark.cli.options import Calibration, Device, Drafter, Dtype, Target
from dspark.cli.screen import out, waiting

if TYPE_CHECKING:
    from dspark.evaluation.overview import Facts


def info(
    target: Target = None,
    drafter: Drafter = None,
    calibration: Calibration = None,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show what dspark runs on: machine, target, drafter, memory, folders. With --target none, without a model."""
    with waiting("Looking around ..."):
        from dspark.evaluation import overview

    sections: dict[str, Facts] = {"machine": overview.machine_facts()}
    if target != "none":
        llm = open_llm(
            target=target,
            drafter=drafter,
            policy="fixed",  # a look needs no profile
            calibration=calibration,
            dtype=dtype,
            device=device,
            max_requests=1,
        )
        sections |= overview.model_facts(llm)
    sections["folders"] = overview.folder_facts()
    if as_json:
        print(json.dumps(sections, indent=2))
    else:
        _print(sections)


def _print(sections: dict[str, Facts]) -> None:
    from dspark.evaluation import overview

    console = out()
    styled = console.is_terminal
    for title, facts in sections.items():
        console.print(title, style="bold" if styled else "")
        for name, fact in facts.items():
            label, value = overview.readable(name, fact)
            console.print(f"  {label:<18} {value}", soft_wrap=True)
