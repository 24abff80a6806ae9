"""Pictures of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from pathlib import Path
from typing import Any

from dspark.evaluation.load.figures import ORACLE
from dspark.evaluation.load.pictures import Curve, draw_frontier, draw_load, fixed_style, oracle_style, plain_style
from dspark.evaluation.panels import Sheet
from dspark.simulation.figures import Course
from dspark.simulation.report import SimulationReport
from dspark.simulation.sweep import PLAIN, SimulatedRow

FRONTIER, LOAD, COURSE = "frontier.png", "load.png", "course.png"
"""Throughput against one user's speed; throughput and budget over users; an open loop as it went."""

_COURSES: Sequence[tuple[str, Callable[[Course], Any]]] = (
    ("requests in progress", lambda course: course.in_progress),
    ("tokens per second", lambda course: course.tokens_per_second),
    ("verified drafts per round", lambda course: course.verify_len),
)


_LONG = 7
"""A fixed length that is drawn as a long one."""


def plot_simulation(report: SimulationReport, folder: Path) -> tuple[str, ...]:
    """Draw what there is to draw, as PNG files; returns their names."""
    closed = [row for row in report.rows if row.users is not None]
    open_loops = [row for row in report.rows if row.course is not None]
    drawn = []
    if len({row.users for row in closed}) > 1:
        panels = {"": [_curve(name, line) for name, line in _lines(closed).items()]}
        draw_frontier(folder / FRONTIER, "Simulated: throughput against speed", panels)
        draw_load(folder / LOAD, "Simulated: throughput and budget over load", panels)
        drawn += [FRONTIER, LOAD]
    if open_loops:
        _course(open_loops, folder / COURSE)
        drawn.append(COURSE)
    return tuple(drawn)


def _curve(policy: str, line: Sequence[SimulatedRow]) -> Curve:
    return Curve(
        label=_label(policy),
        users=[row.users or 0 for row in line],
        throughput=[row.figures.tokens_per_second for row in line],
        speed=[row.figures.user_tokens_per_second or nan for row in line],
        budget=[row.figures.verify_len for row in line],
        style=_style(policy, line),
    )


def _course(rows: Sequence[SimulatedRow], path: Path) -> None:
    loads = list(dict.fromkeys(row.load for row in rows))
    sheet = Sheet(len(_COURSES), len(loads), (5.5, 2.4))
    for column, load in enumerate(loads):
        for place, (what, value) in enumerate(_COURSES):
            panel = sheet.panel(place, column, what)
            for row in rows:
                if row.load == load and row.course is not None:
                    style = _style(row.policy, [row])
                    panel.plot(row.course.seconds, value(row.course), label=_label(row.policy), **style)
            panel.set_ylim(bottom=0)
    sheet.label_columns("seconds")
    sheet.save(path, f"Simulated: {', '.join(loads)}")


def _lines(rows: Sequence[SimulatedRow]) -> dict[str, list[SimulatedRow]]:
    """Rows of each policy, by users."""
    ordered = sorted(rows, key=lambda row: row.users or 0)
    return {name: [row for row in ordered if row.policy == name] for name in dict.fromkeys(r.policy for r in rows)}


def _label(policy: str) -> str:
    return "fixed:0 (plain)" if policy == PLAIN else policy


def _style(policy: str, line: Sequence[SimulatedRow]) -> dict[str, Any]:
    """What decides by itself has a colour of its own."""
    if policy == PLAIN:
        return plain_style()
    if policy == ORACLE:
        return oracle_style()
    if policy.startswith("fixed"):
        return fixed_style(min(max(row.figures.verify_len for row in line) / _LONG, 1.0))
    colours = {"async": "C3", "sync": "C2"}
    return {"color": colours.get(policy, "C1")}
