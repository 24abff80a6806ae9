"""Answering given prompts anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from dspark.data.chat_template import ChatTemplate
from dspark.data.prompt_source import PromptReader
from dspark.data.prompt_turns import PromptTurns
from dspark.recipes.regenerated_file import RegeneratedFile
from dspark.recipes.regeneration_plan import Outcome


class Answers(Protocol):
    """Who answers prompts."""

    template: ChatTemplate

    def run(self, prompts: Iterator[PromptTurns], commit: Callable[[Sequence[Outcome]], None]) -> None:
        """Answer all prompts, and hand over what is finished as often as it makes sense."""
        ...


def regenerate(
    reader: PromptReader,
    answers: Answers,
    file: RegeneratedFile,
    *,
    skip_bad: bool = False,
    progress: Callable[[RegeneratedFile], None] = lambda file: None,
) -> None:
    """Answer every prompt that is not done yet.

    Args:
        reader: the prompts.
        answers: who answers them.
        file: what grows.
        skip_bad: list prompts that cannot be used among the failures instead of stopping at the first one.
        progress: told after everything that was recorded.

    Raises:
        InputError: a prompt that cannot be used, or a writer that cannot write; what was finished stays.
        KeyboardInterrupt: after Ctrl-C; what was finished stays.
    """
    refused: list[Outcome] = []
    if skip_bad:
        reader.on_bad = lambda line, reason: refused.append(Outcome(line=line, reason=reason, attempts=0))

    def commit(outcomes: Sequence[Outcome]) -> None:
        bad = [outcome for outcome in refused if outcome.line not in file.done]
        refused.clear()
        if outcomes or bad:
            file.commit([*bad, *outcomes])
            progress(file)

    try:
        answers.run((turns for turns in reader if turns.line not in file.done), commit)
        commit([])
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {file.kept}, the same command goes on from there") from None
