"""``dspark chat``: talk to the model."""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dspark.cli.answers import AnswerPrinter, say_summary
from dspark.cli.build import open_llm, sampling
from dspark.cli.options import Calibration, Device, Drafter, Dtype, MaxTokens, Policy, Target, TopP
from dspark.cli.screen import err

if TYPE_CHECKING:
    from dspark.core import SamplingParams
    from dspark.engine import LLM

_HELP = "/reset forgets the conversation, /quit or Ctrl-D leaves, Ctrl-C stops an answer."


def chat(
    target: Target = None,
    drafter: Drafter = None,
    policy: Policy = None,
    calibration: Calibration = None,
    dtype: Dtype = None,
    device: Device = None,
    system: Annotated[str | None, typer.Option(help="System message.", show_default=False)] = None,
    max_tokens: MaxTokens = 1024,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_p: TopP = None,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same answers with --policy fixed.", show_default=False)
    ] = None,
) -> None:
    """Talk to the model. Answers stream; earlier turns stay in its prefix cache."""
    params = sampling(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    llm = open_llm(
        target=target,
        drafter=drafter,
        policy=policy,
        calibration=calibration,
        dtype=dtype,
        device=device,
        max_requests=1,
    )
    _check_template(llm)
    if err().is_terminal:
        AnswerPrinter().legend()
        err().print(_HELP, style="dim")
    Conversation(llm, params, system).run()


class Conversation:
    """The turns so far, and the loop that adds to them."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None) -> None:
        self._llm, self._params = llm, params
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self.turns = list(self._opening)

    def run(self) -> None:
        """Until the user leaves."""
        with suppress(EOFError):
            while (line := self._read()) != "/quit":
                if line == "/reset":
                    self.turns = list(self._opening)
                elif line == "/help":
                    err().print(_HELP, style="dim")
                elif line.startswith("/"):
                    err().print(f"there is no command {line.split()[0]}; {_HELP}")
                elif line:
                    self.answer(line)

    def answer(self, text: str) -> None:
        """Add a user turn and the model's answer; a turn the model cannot take is forgotten again."""
        from dspark.core import InputError

        asked = [*self.turns, {"role": "user", "content": text}]
        try:
            written = self._stream(asked)
        except InputError as error:
            err().print(f"dspark: {error} (/reset starts afresh)")
            return
        self.turns = [*asked, {"role": "assistant", "content": written}]

    def _stream(self, turns: list[dict[str, str]]) -> str:
        """Print an answer; Ctrl-C ends it and keeps what is there."""
        printer, written = AnswerPrinter(), ""
        try:
            with closing(cast("Any", self._llm.stream(turns, self._params))) as outputs:
                for output in outputs:
                    printer.write(output)
                    written += output.text
                    if output.completion is not None:
                        printer.end()
                        say_summary(output.completion.stats)
        except KeyboardInterrupt:
            printer.end()
            err().print("stopped", style="dim")
        return written

    def _read(self) -> str:
        """One line from the user; Ctrl-C clears it.

        Raises:
            EOFError: there are no more.
        """
        if not sys.stdin.isatty():
            return _next_line()
        with suppress(ImportError):
            import readline  # noqa: F401 - gives input() history and editing
        while True:
            try:
                return input("\n> ").strip()
            except KeyboardInterrupt:
                print()
            except EOFError:
                print()
                raise


def _next_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


def _check_template(llm: LLM) -> None:
    from dspark.core import InputError

    if not llm.loaded.tokenizer.chat_template:
        raise InputError(
            f"{llm.loaded.name} has no chat template, so one cannot chat with it; use dspark generate --raw"
        )
