"""Reports as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from dspark.cli.screen import waiting


def write_report(folder: Path, json: str, markdown: str, draw: Callable[[], object], *, undrawn: str) -> None:
    """Write ``report.json`` and ``report.md``, and draw if that is possible.

    Args:
        folder: where to; made if it does not exist.
        json, markdown: the report.
        draw: draws its pictures.
        undrawn: said where there is no matplotlib.
    """
    from dspark.core.whole_file import write_whole
    from dspark.evaluation import can_plot

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "report.json", json)
    write_whole(folder / "report.md", markdown)
    if can_plot():
        with waiting("Drawing ..."):
            draw()
    else:
        typer.echo(f"{undrawn} matplotlib (pip install matplotlib)", err=True)
    typer.echo(f"written to {folder}", err=True)
