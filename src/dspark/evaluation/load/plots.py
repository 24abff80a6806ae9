"""The pictures of a load test; docs/benchmarks.md says how to read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dspark.evaluation.arms import PLAIN
from dspark.evaluation.load.figures import ORACLE, ArmFacts, Row
from dspark.evaluation.load.pictures import Curve, draw_frontier, draw_load, fixed_style, oracle_style, plain_style
from dspark.evaluation.load.report import LoadReport

FRONTIER, LOAD = "frontier.png", "load.png"
"""Files of the pictures."""

_MARKERS = ".osD^v"


def plot_load(report: LoadReport, folder: Path) -> tuple[str, ...]:
    """Draw the frontier, and throughput and budget over the load, one column per traffic.

    Returns:
        The names of the files that were written; none without closed loops.
    """
    closed = [row for row in report.rows if row.point.is_closed]
    if not closed:
        return ()
    traffics = dict.fromkeys(row.point.traffic for row in closed)
    panels = {
        traffic: [_curve(report, arm, [row for row in closed if row.point.traffic == traffic]) for arm in report.arms]
        for traffic in traffics
    }
    named = f"{report.target}, {report.dtype}"
    draw_frontier(folder / FRONTIER, f"Throughput against speed: {named}", panels)
    draw_load(folder / LOAD, f"Throughput and budget over load: {named}", panels)
    return (FRONTIER, LOAD)


def _curve(report: LoadReport, arm: ArmFacts, rows: Sequence[Row]) -> Curve:
    line = sorted([row for row in rows if row.arm == arm.name], key=lambda row: row.point.users)
    return Curve(
        label=arm.name,
        users=[row.point.users for row in line],
        throughput=[row.tokens_per_second.value for row in line],
        speed=[row.user_tokens_per_second.value for row in line],
        budget=[row.verify_len for row in line],
        style=_style(report.arms, arm),
        marked=arm.policy == PLAIN,
    )


def _style(arms: Sequence[ArmFacts], arm: ArmFacts) -> dict[str, Any]:
    """Every drafter has a marker of its own, and what decides by itself a colour."""
    drafters = list(dict.fromkeys(entry.drafter for entry in arms))
    marker = {"marker": _MARKERS[drafters.index(arm.drafter) % len(_MARKERS)], "markersize": 4}
    if arm.policy == PLAIN:
        return marker | plain_style()
    if arm.policy == ORACLE:
        return marker | oracle_style()
    if arm.length is not None:
        return marker | fixed_style(arm.length / arm.block_size)
    others = [entry.name for entry in arms if entry.length is None and entry.policy != ORACLE]
    return marker | {"color": f"C{others.index(arm.name) % 9 + 1}"}
