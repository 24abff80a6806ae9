"""A picture of a decode report, if matplotlib is there."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dspark.evaluation.decode_report import DecodeReport, Row


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def plot_report(report: DecodeReport, path: Path) -> None:
    """Draw tokens per second by domain and arm, one panel per concurrency, with the range over the repeats."""
    assert can_plot()
    import_module("matplotlib").use("Agg")
    widths = sorted({row.concurrency for row in report.rows})
    pyplot = import_module("matplotlib.pyplot")
    figure, panels = pyplot.subplots(1, len(widths), figsize=(1 + 5 * len(widths), 4), squeeze=False)
    for panel, width in zip(panels[0], widths, strict=True):
        _draw(panel, [row for row in report.rows if row.concurrency == width], width)
    panels[0][0].set_ylabel("tokens per second")
    panels[0][-1].legend(frameon=False, fontsize="small")
    figure.suptitle(f"{report.target}, {report.dtype}, greedy")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw(panel: Any, rows: Sequence[Row], width: int) -> None:
    """Grouped bars of one concurrency."""
    domains, arms = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("domain", "arm"))
    step = 0.8 / len(arms)
    for number, arm in enumerate(arms):
        speeds = [next(row.tokens_per_second for row in rows if (row.domain, row.arm) == (d, arm)) for d in domains]
        places = [place + (number - (len(arms) - 1) / 2) * step for place in range(len(domains))]
        below, above = [s.median - s.low for s in speeds], [s.high - s.median for s in speeds]
        panel.bar(places, [s.median for s in speeds], step, label=arm, yerr=[below, above], capsize=2)
    panel.set_xticks(range(len(domains)), domains)
    panel.set_title(f"{width} at a time")
    panel.spines[["top", "right"]].set_visible(False)
