"""A picture of a training run: acceptance and loss against the time spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from dspark.evaluation.panels import Sheet, can_plot
from dspark.training.run_log import read_log

CURVE_FILE = "curve.png"
_SMOOTHED_OVER = 50


def draw_curve(folder: Path) -> Path | None:
    """Draw the log of the run in ``folder`` into it; None without matplotlib or before the first validation.

    Hours are those of steps alone, added up over interruptions.
    """
    log = read_log(folder)
    validated = [place for place, entry in enumerate(log) if "sampled" in entry]
    if not validated or not can_plot():
        return None
    hours = [seconds / 3600 for seconds in accumulate(entry["seconds"] for entry in log)]
    at = [hours[place] for place in validated]
    sheet = Sheet(3, 1, (7, 2.6))
    _plot_tau(sheet.panel(0, 0, "tau on held-back conversations"), at, [log[place] for place in validated])
    _plot_positions(
        sheet.panel(1, 0, "conditional acceptance, sampled"), at, [log[place]["sampled"] for place in validated]
    )
    sheet.panel(2, 0, "loss of the batch, running mean").plot(
        hours, _smoothed([entry["loss"] for entry in log]), color="0.3"
    )
    sheet.label_columns("hours")
    sheet.save(folder / CURVE_FILE, f"{folder.name}: {log[-1]['step']} steps")
    return folder / CURVE_FILE


def _plot_tau(panel: Any, hours: Sequence[float], entries: Sequence[Mapping[str, Any]]) -> None:
    for kind, style in (("sampled", "-"), ("greedy", "--")):
        if entries[-1][kind]["blocks"]:
            taus = [entry[kind]["tau"] for entry in entries]
            panel.plot(hours, taus, style, color="0.2", marker=".", label=f"tau, {kind}")


def _plot_positions(panel: Any, hours: Sequence[float], entries: Sequence[Mapping[str, Any]]) -> None:
    """First, last, and what lies between, a line each."""
    positions = len(entries[-1]["conditional"])
    for position in sorted({0, positions // 3, 2 * positions // 3, positions - 1}):
        rates = [entry["conditional"][position] for entry in entries]
        panel.plot(hours, rates, marker=".", label=f"position {position + 1}")


def _smoothed(values: Sequence[float]) -> list[float]:
    """Running means over the last few values."""
    sums = [0.0, *accumulate(values)]
    starts = [max(0, place + 1 - _SMOOTHED_OVER) for place in range(len(values))]
    return [(sums[place + 1] - sums[start]) / (place + 1 - start) for place, start in enumerate(starts)]
