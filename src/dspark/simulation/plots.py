"""Pictures of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dspark.evaluation.panels import Sheet
from dspark.simulation.figures import Course
from dspark.simulation.planners import ORACLE
from dspark.simulation.report import SimulationReport
from dspark.simulation.sweep import PLAIN, SimulatedRow

FRONTIER, LOAD, COURSE = "frontier.png", "load.png", "course.png"
"""Throughput against one user's speed; throughput and budget over users; an open loop as it went."""

_COURSES: Sequence[tuple[str, Callable[[Course], Any]]] = (
    ("requests in progress", lambda course: course.in_progress),
    ("tokens per second", lambda course: course.tokens_per_second),
    ("verified drafts per round", lambda course: course.verify_len),
)
_LOADS: Sequence[tuple[str, Callable[[SimulatedRow], float]]] = (
    ("tokens per second", lambda row: row.figures.tokens_per_second),
    ("verified drafts per round", lambda row: row.figures.verify_len),
)


def plot_simulation(report: SimulationReport, folder: Path) -> tuple[str, ...]:
    """Draw what there is to draw, as PNG files; returns their names."""
    closed = [row for row in report.rows if row.users is not None]
    open_loops = [row for row in report.rows if row.course is not None]
    drawn = []
    if len({row.users for row in closed}) > 1:
        _frontier(closed, folder / FRONTIER)
        _load(closed, folder / LOAD)
        drawn += [FRONTIER, LOAD]
    if open_loops:
        _course(open_loops, folder / COURSE)
        drawn.append(COURSE)
    return tuple(drawn)


def _frontier(rows: Sequence[SimulatedRow], path: Path) -> None:
    sheet = Sheet(1, 1, (5.5, 4))
    panel = sheet.panel(0, 0, "")
    for policy, line in _lines(rows).items():
        speeds = [row.figures.user_tokens_per_second for row in line]
        panel.plot(speeds, [row.figures.tokens_per_second for row in line], **_style(policy, line))
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    sheet.label_rows("tokens per second, all users")
    sheet.label_columns("tokens per second of one user")
    sheet.save(path, "Simulated: throughput against speed")


def _load(rows: Sequence[SimulatedRow], path: Path) -> None:
    sheet = Sheet(len(_LOADS), 1, (5.5, 2.8))
    for place, (what, value) in enumerate(_LOADS):
        panel = sheet.panel(place, 0, what)
        for policy, line in _lines(rows).items():
            panel.plot([row.users for row in line], [value(row) for row in line], **_style(policy, line))
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
    sheet.label_columns("users at a time")
    sheet.save(path, "Simulated: throughput and budget over load")


def _course(rows: Sequence[SimulatedRow], path: Path) -> None:
    loads = list(dict.fromkeys(row.load for row in rows))
    sheet = Sheet(len(_COURSES), len(loads), (5.5, 2.4))
    for column, load in enumerate(loads):
        for place, (what, value) in enumerate(_COURSES):
            panel = sheet.panel(place, column, what)
            for row in rows:
                if row.load == load and row.course is not None:
                    style = {**_style(row.policy, [row]), "marker": ""}
                    panel.plot(row.course.seconds, value(row.course), **style)
            panel.set_ylim(bottom=0)
    sheet.label_columns("seconds")
    sheet.save(path, f"Simulated: {', '.join(loads)}")


def _lines(rows: Sequence[SimulatedRow]) -> dict[str, list[SimulatedRow]]:
    """Rows of each policy, by users."""
    ordered = sorted(rows, key=lambda row: row.users or 0)
    return {name: [row for row in ordered if row.policy == name] for name in dict.fromkeys(r.policy for r in rows)}


def _style(policy: str, line: Sequence[SimulatedRow]) -> dict[str, Any]:
    """Plain decoding black, the oracle dashed, fixed lengths thin; what decides by itself in a colour of its own."""
    style: dict[str, Any] = {"label": policy, "marker": "o", "markersize": 3}
    if policy == PLAIN:
        return {**style, "color": "black", "label": "fixed:0 (plain)"}
    if policy == ORACLE:
        return {**style, "color": "grey", "linestyle": "--"}
    if policy.startswith("fixed"):
        shade = 0.75 - 0.08 * min(max(row.figures.verify_len for row in line), 7)
        return {**style, "color": (shade, shade, 0.85), "linewidth": 1}
    colours = {"async": "C3", "sync": "C2"}
    return {**style, "color": colours.get(policy, "C1")}
