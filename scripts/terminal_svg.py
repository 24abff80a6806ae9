"""Turns coloured terminal output on standard input into an SVG picture.

Usage: FORCE_COLOR=1 .venv/bin/dspark demo | .venv/bin/python scripts/terminal_svg.py docs/demo.svg "dspark demo"
"""

from __future__ import annotations

import io
import re
import sys

from rich.console import Console
from rich.text import Text


def picture(ansi: str, title: str, width: int = 110) -> str:
    """SVG of a terminal of the given width that shows the text."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(ansi))
    return re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)  # no web fonts


def main() -> None:
    """Read, draw, write."""
    if len(sys.argv) != 3:
        sys.exit("usage: terminal_svg.py OUT.svg TITLE < coloured terminal output")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(picture(sys.stdin.read(), sys.argv[2]))


if __name__ == "__main__":
    main()
