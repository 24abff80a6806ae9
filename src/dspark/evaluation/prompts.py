"""Prompts to measure with, read from JSONL files that the user names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from dspark.core import InputError
from dspark.engine.prompts import Message, read_conversations, read_prompts

EvalPrompt = str | tuple[Message, ...]
"""A text that is used as it is, or a conversation that goes through the model's chat template."""

_FORMS = '{"turns": ["...", ...]}, {"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": "..."}'


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """Prompts of one kind.

    Attributes:
        domain: what reports call them.
        prompts: at least one.
    """

    domain: str
    prompts: tuple[EvalPrompt, ...]

    def __post_init__(self) -> None:
        if not self.prompts:
            raise InputError(f"prompt set {self.domain!r} is empty")

    def token_ids(self, tokenizer: PreTrainedTokenizerBase) -> list[tuple[int, ...]]:
        """Token ids of every prompt, rendered as the engine renders it.

        Raises:
            InputError: a conversation, and the model has no chat template.
        """
        return [_encode(prompt, tokenizer) for prompt in self.prompts]


def load_prompt_sets(specs: Sequence[str]) -> tuple[PromptSet, ...]:
    """Read several ``FILE[:N]``; the domain of each is the file's name without its ending.

    Raises:
        InputError: what is wrong with the first bad one, or two of the same name.
    """
    return check_sets([load_prompts(spec) for spec in specs])


def check_sets(sets: Sequence[PromptSet]) -> tuple[PromptSet, ...]:
    """The sets, if they have different names.

    Raises:
        InputError: two have the same.
    """
    twice = [name for name, count in Counter(entry.domain for entry in sets).items() if count > 1]
    if twice:
        raise InputError(f"two prompt files are called {twice[0]!r}; reports need different names")
    return tuple(sets)


def load_prompts(spec: str) -> PromptSet:
    """Read ``FILE`` or, for its first N prompts, ``FILE:N``.

    A line is one JSON object: ``turns`` (the first one is asked), ``messages`` (up to the last user message), or
    ``prompt`` (used as it is, without the chat template).

    Raises:
        InputError: no such file, a line of another form (its number is named), or fewer than N prompts.
    """
    name, count = split_count(spec)
    path = Path(name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read prompts from {path}: {getattr(error, 'strerror', None) or error}") from None
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if count is not None and len(numbered) < count:
        raise InputError(f"{path} has {len(numbered)} prompts, {count} were asked for")
    if not numbered:
        raise InputError(f"{path} holds no prompts")
    return PromptSet(
        domain=path.stem, prompts=tuple(_read_line(path, number, line) for number, line in numbered[:count])
    )


def split_count(spec: str) -> tuple[str, int | None]:
    """Split ``NAME[:N]``; a file whose name really ends in a colon and a number is taken as it is.

    Raises:
        InputError: N is no positive number.
    """
    name, colon, tail = spec.rpartition(":")
    if not colon or not name or Path(spec).is_file():
        return spec, None
    if not tail.isdigit() or int(tail) < 1:
        raise InputError(f"prompts must be FILE or FILE:N with N >= 1, got {spec!r}")
    return name, int(tail)


def _read_line(path: Path, number: int, line: str) -> EvalPrompt:
    try:
        raw = json.loads(line)
    except ValueError:
        raise InputError(f"{path}, line {number}: not JSON; expected {_FORMS}") from None
    prompt = _prompt_of(raw) if isinstance(raw, dict) else None
    if not prompt:
        raise InputError(f"{path}, line {number}: no prompt in it; expected {_FORMS}")
    return prompt


def _prompt_of(raw: Mapping[str, Any]) -> EvalPrompt | None:
    """The prompt of a line, None if it has none of the known forms."""
    match raw:
        case {"turns": [str(first), *_]} if first.strip():
            return ({"role": "user", "content": first},)
        case {"messages": [*messages]} if all(_is_message(message) for message in messages):
            asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
            return tuple(messages[: asked[-1] + 1]) if asked else None
        case {"prompt": str(text)} if text.strip():
            return text
    return None


def _is_message(message: object) -> bool:
    return (
        isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
    )


def _encode(prompt: EvalPrompt, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    read = read_prompts if isinstance(prompt, str) else read_conversations
    return read(prompt, tokenizer)[0].ids
