"""Answers on the screen: who wrote each token is shown in colour on a terminal, and not at all anywhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dspark.cli.screen import err, out

if TYPE_CHECKING:
    from dspark.engine import CompletionStats, StepOutput

STYLES = {"draft": "green", "correction": "yellow", "bonus": "cyan", "plain": ""}
"""Colour of a token by its origin."""

_MEANINGS = (
    ("draft", "drafted and accepted"),
    ("correction", "the target's correction"),
    ("bonus", "the target's bonus token"),
    ("plain", "plain"),
)


_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
"""Control characters and the signs that stand for them: a model must not steer the terminal."""


class AnswerPrinter:
    """Prints one answer as it comes."""

    def __init__(self) -> None:
        self._console = out()
        self.coloured = self._console.is_terminal and not self._console.no_color and bool(self._console.color_system)

    def write(self, output: StepOutput) -> None:
        """Print what is new."""
        if not self.coloured:
            sys.stdout.write(output.text)
            sys.stdout.flush()
            return
        for piece in output.pieces:
            self._paint(piece.text, piece.origin)

    def end(self) -> None:
        """Finish the line."""
        sys.stdout.write("\n")
        sys.stdout.flush()

    def legend(self) -> None:
        """Explain the colours, where there are any."""
        if self.coloured:
            for origin, meaning in _MEANINGS:
                self._paint("■ " + meaning + "  ", origin)
            self.end()

    def _paint(self, text: str, origin: str) -> None:
        from rich.text import Text

        self._console.print(Text(text.translate(_VISIBLE), STYLES[origin]), end="", soft_wrap=True)


def summary(stats: CompletionStats) -> str:
    """Speed and acceptance of one answer, in words."""
    tokens = stats.committed + 1
    speed = f", {stats.committed / stats.decode_seconds:.0f} tokens/s" if stats.decode_seconds > 0 else ""
    accepted = f", {stats.tau:.2f} tokens a round" if stats.drafted else ""
    return f"{tokens} tokens{speed}{accepted}"


def say_summary(stats: CompletionStats) -> None:
    """Print the summary dimly, for people only."""
    console = err()
    if console.is_terminal:
        console.print(summary(stats), style="dim")
