"""A profile of what steps cost, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dspark.evaluation.panels import Sheet
from dspark.evaluation.tables import markdown_table
from dspark.scheduling import CostModel, TimeTable


def cost_markdown(model: CostModel, doubts: Sequence[str]) -> str:
    """A report.

    Args:
        model: the profile.
        doubts: what is doubtful about it.
    """
    return "\n".join(_lines(model, doubts)) + "\n"


def _lines(model: CostModel, doubts: Sequence[str]) -> Iterator[str]:
    identity = model.identity
    yield from ("# What steps cost", "")
    yield f"* {identity.machine}, {identity.threads} threads, {identity.dtype}, {identity.backend}"
    yield f"* target {identity.model}"
    if identity.drafter:
        yield f"* drafter {identity.drafter}"
    yield f"* {', '.join(f'{name} {value}' for name, value in sorted(identity.versions.items()))}"
    yield f"* {model.note}"
    yield from ("", "## A step without its drafting, in ms", "")
    yield _table("rows", model.verify, "keys {}")
    if model.draft is not None:
        yield from ("", "## Drafting, in ms", "")
        yield _table("requests", model.draft, "block {}")
    if doubts:
        yield from ("", "## Doubts", "")
        yield from (f"* {doubt}" for doubt in doubts)


def _table(unit: str, table: TimeTable, depth: str) -> str:
    """Times by width, a column per depth, and how much the repeats differ."""
    head = [unit, *(depth.format(number) for number in table.depths), "steps/s", "spread"]
    spreads = table.spread or ((0.0,) * len(table.widths),) * len(table.depths)
    rows = [
        [
            str(width),
            *(f"{1e3 * row[place]:.2f}" for row in table.seconds),
            f"{1 / table.seconds[0][place]:.1f}",
            f"{max(row[place] for row in spreads):.0%}",
        ]
        for place, width in enumerate(table.widths)
    ]
    return markdown_table(head, rows)


def plot_costs(model: CostModel, path: Path) -> None:
    """Draw milliseconds over width: every measured point, joined by lines as the scheduler joins them."""
    tables = [("a step", "target rows", "keys", model.verify)]
    if model.draft is not None:
        tables.append(("drafting", "requests that draft", "block", model.draft))
    sheet = Sheet(1, len(tables), (5.5, 4))
    for column, (what, unit, depth, table) in enumerate(tables):
        panel = sheet.panel(0, column, what)
        panel.set_xlabel(unit)
        _curves(panel, table, f"{what}, {depth}")
    sheet.label_rows("milliseconds")
    sheet.save(path, f"{model.identity.model.partition(':')[0]} on {model.identity.machine}, {model.identity.dtype}")


def _curves(panel: Any, table: TimeTable, label: str) -> None:
    for depth, row in zip(table.depths, table.seconds, strict=True):
        panel.plot(table.widths, [1e3 * seconds for seconds in row], marker=".", label=f"{label} {depth}")
    panel.set_xscale("log", base=2)
    panel.set_ylim(bottom=0)
