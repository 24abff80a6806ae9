"""Drawing with matplotlib, if it is there: sheets of panels, and the marks that several pictures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


class Sheet:
    """A figure of rows x columns panels that share their axes.

    Args:
        rows, columns: how many panels.
        size: width and height of a panel in inches.
    """

    def __init__(self, rows: int, columns: int, size: tuple[float, float] = (4.5, 3.5)) -> None:
        assert can_plot()
        import_module("matplotlib").use("Agg")
        self._pyplot: Any = import_module("matplotlib.pyplot")
        width, height = 1 + size[0] * columns, 0.6 + size[1] * rows
        self.figure, self._panels = self._pyplot.subplots(
            rows, columns, figsize=(width, height), squeeze=False, sharex="col", sharey="row"
        )

    def panel(self, row: int, column: int, title: str) -> Any:
        """A panel, titled and without the box around it."""
        panel = self._panels[row][column]
        panel.set_title(title, fontsize="medium")
        panel.spines[["top", "right"]].set_visible(False)
        return panel

    def label_rows(self, text: str) -> None:
        """What the vertical axes mean."""
        for row in self._panels:
            row[0].set_ylabel(text)

    def label_columns(self, text: str) -> None:
        """What the horizontal axes mean."""
        for panel in self._panels[-1]:
            panel.set_xlabel(text)

    def save(self, path: Path, title: str) -> None:
        """Write the picture, with one legend for all panels."""
        found: dict[str, Any] = {}
        for panel in self._panels.flat:
            marks, labels = panel.get_legend_handles_labels()
            found |= dict(zip(labels, marks, strict=True))
        self.figure.suptitle(title)
        self.figure.tight_layout()
        if found:
            self.figure.legend(
                found.values(),
                found.keys(),
                loc="upper left",
                bbox_to_anchor=(1.0, 0.9),
                frameon=False,
                fontsize="small",
            )
        self.figure.savefig(path, dpi=150, bbox_inches="tight")
        self._pyplot.close(self.figure)


@dataclass(frozen=True)
class Bar:
    """A height and the ends of its interval."""

    value: float
    low: float
    high: float


def grouped_bars(panel: Any, groups: Sequence[str], series: Mapping[str, Sequence[Bar | None]]) -> None:
    """Bars side by side in every group.

    Args:
        panel: where to draw.
        groups: names of the groups.
        series: per label one bar for each group; None leaves a gap.
    """
    step = 0.8 / len(series)
    for number, (label, bars) in enumerate(series.items()):
        there = [(place, bar) for place, bar in enumerate(bars) if bar is not None]
        places = [place + (number - (len(series) - 1) / 2) * step for place, _ in there]
        reach = [[bar.value - bar.low for _, bar in there], [bar.high - bar.value for _, bar in there]]
        panel.bar(places, [bar.value for _, bar in there], step, label=label, yerr=reach, capsize=2)
    panel.set_xticks(range(len(groups)), groups)
