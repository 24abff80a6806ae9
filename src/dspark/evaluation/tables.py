"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with aligned columns: text on the left, numbers on the right."""
    cells = [tuple(head), *(tuple(row) for row in rows)]
    numeric = [_is_numeric([row[column] for row in cells[1:]]) for column in range(len(head))]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(head))]
    rule = "|".join("-" * (width + 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True))
    lines = [_line(row, widths, numeric) for row in cells]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def cell(value: float | None, form: str) -> str:
    """A number in a format; nothing where there is none."""
    return "" if value is None or value != value else format(value, form)


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, numeric, strict=True)
    ]
    return f"| {' | '.join(parts)} |"


def _is_numeric(column: Sequence[str]) -> bool:
    """Whether every filled cell starts with a digit or a sign."""
    filled = [cell for cell in column if cell]
    return bool(filled) and all(cell.lstrip("-+")[:1].isdigit() for cell in filled)
