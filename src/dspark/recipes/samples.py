"""A look at conversations: measured, and some of them as text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from dspark.core import InputError
from dspark.data.chat_format import ChatFormat
from dspark.data.conversation import Conversation, check_files, read_conversations
from dspark.data.record import recorded_target
from dspark.data.stats import Stats, measure
from dspark.target import DEFAULT_TARGET
from dspark.target.tokenizers import load_tokenizer


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A conversation as text.

    Attributes:
        name: where it stands and what kind it is.
        pieces: its text, cut where learning starts and stops, and whether the piece is learnt.
    """

    name: str
    pieces: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen.

    Attributes:
        target: whose tokens the files hold; None if nothing tells.
        stats: numbers.
        samples: a few of the conversations.
        remarks: what could not be seen, and why.
    """

    target: str | None
    stats: Stats
    samples: tuple[Sample, ...]
    remarks: tuple[str, ...]


def look_at(files: Sequence[Path], *, target: str | None = None, samples: int = 0, seed: int = 0) -> Look:
    """Measure files of conversations.

    Args:
        files: the files.
        target: whose tokens they hold; None takes the default target if the files were written by it.
        samples: how many conversations are wanted as text.
        seed: which ones.

    Raises:
        InputError: a missing or bad file, files of different targets, or of another one than ``target``.
    """
    name = _target_of(files)
    spec = target or (DEFAULT_TARGET if name == DEFAULT_TARGET else None)
    tokenizer: Any = None
    remarks = []
    if spec is not None:
        loaded = load_tokenizer(spec)
        if name not in (None, loaded.name):
            raise InputError(f"these conversations hold tokens of {name!r}, not of {loaded.name!r}; give --target")
        tokenizer = loaded.tokenizer
    else:
        remarks.append("nearly equal prompts and samples need the tokenizer: give --target")
    stats = measure(
        _all(files),
        text_of=_prompt_text(tokenizer) if tokenizer is not None else None,
        vocab_size=len(tokenizer) if tokenizer is not None else None,
    )
    chosen = _choose(stats.total.conversations, samples if tokenizer is not None else 0, seed)
    return Look(
        target=name,
        stats=stats,
        samples=tuple(
            _sample(number, conversation, tokenizer)
            for number, conversation in enumerate(_all(files), start=1)
            if number in chosen
        )
        if chosen
        else (),
        remarks=tuple(remarks),
    )


def _target_of(files: Sequence[Path]) -> str | None:
    """Whose tokens the files hold, as far as their records tell."""
    check_files(files)
    names = {name for name in map(recorded_target, files) if name is not None}
    if len(names) > 1:
        raise InputError(f"these files hold tokens of different targets: {', '.join(sorted(names))}")
    return names.pop() if names else None


def _all(files: Sequence[Path]) -> Iterator[Conversation]:
    for file in files:
        yield from read_conversations(file)


def _prompt_text(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Reads a prompt without what the template always puts before and behind it."""
    try:
        form = ChatFormat.of(tokenizer)
        before, behind = form.opening, form.to_answer
    except InputError:  # a template that cannot be taken apart; markers stay in then
        before = behind = ()

    def text(ids: Sequence[int]) -> str:
        start = len(before) if tuple(ids[: len(before)]) == before else 0
        stop = len(ids) - len(behind) if behind and tuple(ids[-len(behind) :]) == behind else len(ids)
        return str(tokenizer.decode(list(ids[start:stop]), skip_special_tokens=True))

    return text


def _choose(count: int, wanted: int, seed: int) -> set[int]:
    return set(random.Random(seed).sample(range(1, count + 1), min(wanted, count)))


def _sample(number: int, conversation: Conversation, tokenizer: Any) -> Sample:
    pieces = []
    for learnt, run in groupby(zip(conversation.mask, conversation.ids, strict=True), key=lambda pair: pair[0]):
        pieces.append((str(tokenizer.decode([token for _, token in run])), bool(learnt)))
    ended = "complete" if conversation.complete else "cut"
    named = f"conversation {number}, {conversation.domain}, temperature {conversation.temperature:g}, {ended}"
    return Sample(name=named, pieces=tuple(pieces))
