"""Colours: only on a terminal, never with NO_COLOR, and then all there is to see."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from dspark.cli import answers
from dspark.cli.answers import AnswerPrinter
from dspark.core import Piece, TokenOrigin
from dspark.engine import StepOutput

PIECES = (
    Piece("one ", TokenOrigin.DRAFT, 0.9),
    Piece("two ", TokenOrigin.CORRECTION),
    Piece("three", TokenOrigin.BONUS),
)


def output(*pieces: Piece) -> StepOutput:
    return StepOutput(
        request_id="r", index=0, text="".join(piece.text for piece in pieces), token_ids=(), origins=(), pieces=pieces
    )


def printed(monkeypatch: pytest.MonkeyPatch, *pieces: Piece, terminal: bool, **env: str) -> str:
    """What a printer puts out on a terminal, or in a pipe."""
    screen = io.StringIO()
    environment = {"TERM": "xterm-256color", **env}
    console = Console(file=screen, force_terminal=terminal, _environ=environment, highlight=False, markup=False)
    monkeypatch.setattr(answers, "out", lambda: console)
    monkeypatch.setattr("sys.stdout", screen)
    printer = AnswerPrinter()
    printer.write(output(*pieces))
    printer.end()
    printer.legend()
    return screen.getvalue()


def test_colours_and_legend_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, *PIECES, terminal=True)
    assert text.startswith("\x1b[32mone \x1b[0m\x1b[33mtwo \x1b[0m\x1b[36mthree\x1b[0m\n")
    legend = re.sub(r"\x1b\[\d*m", "", text.splitlines()[1])
    assert "■ drafted and accepted" in legend
    assert "correction" in legend
    assert "bonus" in legend


def test_plain_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, *PIECES, terminal=False) == "one two three\n"


def test_plain_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, *PIECES, terminal=True, NO_COLOR="1") == "one two three\n"


def test_plain_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, *PIECES, terminal=True, TERM="dumb") == "one two three\n"


def test_markup_and_escapes_of_the_model_are_shown_not_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, Piece("[red]x[/red] \x1b[2J", TokenOrigin.PLAIN), terminal=True)
    assert text.splitlines()[0] == "[red]x[/red] ␛[2J"
