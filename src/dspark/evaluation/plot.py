"""A picture of a decode report, if matplotlib is there."""

from __future__ import annotations

from pathlib import Path

from dspark.evaluation.decode_report import DecodeReport, Row
from dspark.evaluation.panels import Bar, Sheet, grouped_bars


def plot_report(report: DecodeReport, path: Path) -> None:
    """Draw tokens per second by domain and arm, one panel per concurrency, with the range over the repeats."""
    widths = sorted({row.concurrency for row in report.rows})
    domains = list(dict.fromkeys(row.domain for row in report.rows))
    sheet = Sheet(1, len(widths), (5, 4))
    for column, width in enumerate(widths):
        rows = [row for row in report.rows if row.concurrency == width]
        series = {
            arm: [_bar(next(row for row in rows if (row.domain, row.arm) == (domain, arm))) for domain in domains]
            for arm in dict.fromkeys(row.arm for row in rows)
        }
        grouped_bars(sheet.panel(0, column, f"{width} at a time"), domains, series)
    sheet.label_rows("tokens per second")
    sheet.save(path, f"{report.target}, {report.dtype}, greedy")


def _bar(row: Row) -> Bar:
    speed = row.tokens_per_second
    return Bar(speed.median, speed.low, speed.high)
