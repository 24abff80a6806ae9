"""Conversations as token ids with a loss mask, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dspark.core import InputError


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One training sequence.

    Attributes:
        ids: token ids, template included.
        mask: 1 for every token the target wrote as an answer (end token included), 0 elsewhere.
        domain: where its opening came from.
        temperature: at which its answers were sampled.
        complete: whether the last answer ended by itself (and was not cut at the length limit).
        line: where its prompt stood in the file it was regenerated from; None for one that has no such file.
    """

    ids: list[int]
    mask: list[int]
    domain: str
    temperature: float
    complete: bool
    line: int | None = None

    def __post_init__(self) -> None:
        if not all(type(token) is int and token >= 0 for token in self.ids):
            raise InputError("token ids must be integers >= 0")
        if len(self.ids) != len(self.mask):
            raise InputError(f"a conversation needs one mask entry per token, got {len(self.mask)} for {len(self.ids)}")


def as_line(conversation: Conversation) -> str:
    """A conversation as a line of a JSONL file."""
    fields = asdict(conversation)
    if conversation.line is None:
        del fields["line"]
    return json.dumps(fields) + "\n"


def append_conversations(path: Path, conversations: Sequence[Conversation]) -> None:
    """Append to a JSONL file.

    Raises:
        OSError: it could not be written; the error names the file.
    """
    append_lines(path, [as_line(conversation) for conversation in conversations])


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines to a text file.

    Raises:
        OSError: it could not be written; the error names the file.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:  # a failed write does not know the name of its file
        raise OSError(error.errno, error.strerror, str(path)) from None


def check_files(files: Iterable[Path]) -> None:
    """See that files of conversations are there.

    Raises:
        InputError: about the first one that is not.
    """
    for file in files:
        if not file.is_file():
            raise InputError(f"there is no file {file}; expected conversations, one JSON object a line")


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Read a JSONL file of conversations.

    Raises:
        InputError: a line that is no conversation (its number is named).
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield Conversation(**json.loads(line))
            except (TypeError, ValueError) as wrong:
                raise InputError(f"{path}, line {number}: not a conversation ({wrong})") from None
