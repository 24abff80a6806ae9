"""Pictures of an evaluation; docs/reading-the-plots.md says how to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dspark.evaluation.bootstrap import Estimate
from dspark.evaluation.confidence_quality import Quality
from dspark.evaluation.eval_figures import EvalRow, Summary
from dspark.evaluation.eval_report import EvalReport
from dspark.evaluation.panels import Bar, Sheet, grouped_bars

FEW = 20
"""A position that fewer blocks reached is drawn as not firmly known."""


def plot_evaluation(report: EvalReport, folder: Path) -> tuple[str, ...]:
    """Draw what there is to draw, as PNG files.

    Returns:
        The names of the files that were written.
    """
    pictures: dict[str, Callable[[EvalReport, Path], None] | None] = {
        "tau.png": _tau,
        "conditional.png": _conditional if any(row.conditional for row in report.rows) else None,
        "survival.png": _survival if any(row.conditional for row in report.rows) else None,
        "reliability.png": _reliability if _judged(report) else None,
        "sweep.png": _sweep if any(entry.sweep for entry in report.summaries) else None,
    }
    drawn = {name: draw for name, draw in pictures.items() if draw is not None}
    for name, draw in drawn.items():
        draw(report, folder / name)
    return tuple(drawn)


def _title(report: EvalReport, what: str) -> str:
    return f"{what}: {report.target}, {report.dtype}"


def _temperatures(report: EvalReport) -> list[float]:
    return list(dict.fromkeys(row.temperature for row in report.rows))


def _domains(report: EvalReport) -> list[str]:
    return list(dict.fromkeys(row.domain for row in report.rows))


def _colours(report: EvalReport) -> dict[str, str]:
    """One colour for each drafter in all pictures."""
    return {arm.name: f"C{number % 10}" for number, arm in enumerate(report.arms)}


def _tau(report: EvalReport, path: Path) -> None:
    temperatures = _temperatures(report)
    domains = _domains(report)
    groups = [*domains, "mean"] if len(domains) > 1 else domains
    sheet = Sheet(len(temperatures), 1, (2.5 + 1.2 * len(groups), 3))
    for place, temperature in enumerate(temperatures):
        found = {(row.arm, row.domain): row.tau for row in report.rows if row.temperature == temperature}
        found |= {(entry.arm, "mean"): entry.tau for entry in report.summaries if entry.temperature == temperature}
        series = {arm.name: [_bar(found.get((arm.name, group))) for group in groups] for arm in report.arms}
        panel = sheet.panel(place, 0, f"T = {temperature:g}")
        grouped_bars(panel, groups, series)
        panel.axhline(1.0, color="grey", linewidth=0.8)
    sheet.label_rows("tokens per round")
    sheet.save(path, _title(report, "tau"))


def _bar(estimate: Estimate | None) -> Bar | None:
    if estimate is None:
        return None
    low, high = (estimate.value if end is None else end for end in (estimate.low, estimate.high))
    return Bar(estimate.value, low, high)


def _conditional(report: EvalReport, path: Path) -> None:
    _by_position(report, path, "P(accepted | all before accepted)", lambda row: row.conditional)


def _survival(report: EvalReport, path: Path) -> None:
    _by_position(report, path, "P(accepted up to here)", lambda row: row.survival)


def _by_position(
    report: EvalReport, path: Path, what: str, values: Callable[[EvalRow], Sequence[float | None]]
) -> None:
    """One line per drafter; a panel per temperature and prompt set."""
    temperatures, colours = _temperatures(report), _colours(report)
    domains = _domains(report)
    sheet = Sheet(len(temperatures), len(domains), (3.5, 3))
    for line, temperature in enumerate(temperatures):
        for column, domain in enumerate(domains):
            panel = sheet.panel(line, column, f"{domain}, T = {temperature:g}")
            panel.set_ylim(0, 1.02)
            for row in report.rows:
                if (row.domain, row.temperature) == (domain, temperature) and row.conditional:
                    _line(panel, row, values(row), colours[row.arm])
    sheet.label_rows("share")
    sheet.label_columns("position in the block")
    sheet.save(path, _title(report, what))


def _line(panel: Any, row: EvalRow, values: Sequence[float | None], colour: str) -> None:
    """Dotted where it rests on few blocks."""
    known = [(k, share) for k, share in enumerate(values, start=1) if share is not None]
    firm = [(k, share) for k, share in known if row.counts.reached_at[k - 1] >= FEW]
    panel.plot(*_columns(known), linestyle=":", linewidth=1, color=colour)
    panel.plot(*_columns(firm), marker="o", markersize=3, label=row.arm, color=colour)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Points as x and y."""
    return [x for x, _ in points], [y for _, y in points]


def _judged(report: EvalReport) -> list[tuple[Summary, str]]:
    """Drafters and temperatures with confidences that were used at least once, and a title for each."""
    return [
        (entry, f"{entry.arm}, T = {entry.temperature:g}")
        for entry in report.summaries
        if entry.confidence is not None and entry.confidence.raw.conditional.overall.count
    ]


def _reliability(report: EvalReport, path: Path) -> None:
    """Two panels for each drafter and temperature: slots by themselves, and prefixes."""
    judged = _judged(report)
    sheet = Sheet(len(judged), 2, (3.5, 3.5))
    for line, (entry, title) in enumerate(judged):
        assert entry.confidence is not None
        for column, what in enumerate(("conditional", "survival")):
            panel = sheet.panel(line, column, f"{title}: {what}")
            _diagram(panel, entry.confidence.raw, what, "raw", "C0")
            if entry.confidence.calibrated is not None:
                _diagram(panel, entry.confidence.calibrated, what, "calibrated", "C1")
            panel.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle="--", label="exact")
    sheet.label_rows("share accepted")
    sheet.label_columns("predicted probability")
    sheet.save(path, _title(report, "Reliability of confidences"))


def _diagram(panel: Any, quality: Quality, what: str, label: str, colour: str) -> None:
    """Predicted against observed, and below it how many entries each bin has."""
    bins = getattr(quality, what).bins
    points = [(p, o) for p, o, count in zip(bins.predicted, bins.observed, bins.count, strict=True) if count]
    panel.plot(*_columns(points), marker="o", markersize=3, color=colour, label=label)
    width = 1 / len(bins.count)
    heights = [0.25 * count / max(bins.count) for count in bins.count]
    panel.bar([(place + 0.5) * width for place in range(len(bins.count))], heights, width, color=colour, alpha=0.25)


def _sweep(report: EvalReport, path: Path) -> None:
    """Acceptance rate, verify length and tau over the threshold; a column per temperature."""
    colours = _colours(report)
    swept = [entry for entry in report.summaries if entry.sweep]
    temperatures = list(dict.fromkeys(entry.temperature for entry in swept))
    sheet = Sheet(len(_SWEPT), len(temperatures), (4.5, 2.5))
    for column, temperature in enumerate(temperatures):
        for line, (what, name, bottom) in enumerate(_SWEPT):
            panel = sheet.panel(line, column, f"{what}, T = {temperature:g}")
            for entry in swept:
                if entry.temperature == temperature:
                    points, colour = list(_curve(entry, name)), colours[entry.arm]
                    panel.plot(*_columns(points), marker="o", markersize=3, label=entry.arm, color=colour)
            panel.set_ylim(bottom=bottom)
    sheet.label_columns("confidence threshold")
    sheet.save(path, _title(report, "Thresholds, round by round"))


_SWEPT = (
    ("acceptance rate", "acceptance_rate", 0.0),
    ("verified a round", "verify_len", 0.0),
    ("tokens per round", "tau", 1.0),
)
"""What is drawn: its title, its name, and where its axis begins."""


def _curve(entry: Summary, name: str) -> Iterator[tuple[float, float]]:
    for point in entry.sweep:
        value = getattr(point, name)
        if value is not None:
            yield point.threshold, value
