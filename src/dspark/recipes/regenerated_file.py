"""The file that grows while prompts are answered, the failures beside it, and how far both can be trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark.core import InputError
from dspark.core.whole_file import write_whole
from dspark.data.conversation import append_lines, as_line, read_conversations
from dspark.data.record import read_record, record_path
from dspark.engine.interrupts import interrupts_deferred
from dspark.recipes.regeneration_plan import Outcome

_COUNTS = ("size", "failures_size", "count", "tokens", "cut", "failed")


@dataclass(kw_only=True)
class RegeneratedFile:
    """A growing file of conversations, one of failures, and a record that says how far both can be trusted.

    Whatever interrupts the writing, prompts that are recorded as done are done, all others are begun anew.

    Attributes:
        path: conversations.
        identity: what the file is made of and by whom; it can be gone on with by the same only.
        done: lines that need not be answered any more.
        size, failures_size: bytes that the record vouches for.
        count, tokens, cut, failed: conversations, tokens in them, those with a cut answer, and failed prompts.
    """

    path: Path
    identity: Mapping[str, Any]
    done: set[int] = field(default_factory=set)
    size: int = 0
    failures_size: int = 0
    count: int = 0
    tokens: int = 0
    cut: int = 0
    failed: int = 0

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any], *, retry_failures: bool = False) -> RegeneratedFile:
        """Begin a file, or take up one that was begun in the same way.

        Args:
            path: the file.
            identity: source, plan, target, writer; JSON.
            retry_failures: answer prompts again that failed.

        Raises:
            InputError: a foreign or damaged file, or another source, plan, target or writer.
        """
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to write {path.name} into")
        identity = json.loads(json.dumps(identity))
        found = cls(path=path, identity=identity)
        if not record_path(path).exists():
            for there in (path, found.failures):
                if there.exists():
                    raise InputError(f"{there} exists, but not {record_path(path).name}; choose another name")
            return found
        record = read_record(record_path(path), [*identity, *_COUNTS])
        if changes := _changes(record, identity):
            raise InputError(f"{path} was begun with another {changes}; choose another name or the same options")
        for name in _COUNTS:
            setattr(found, name, record[name])
        if retry_failures:
            found.failures_size = found.failed = 0
            found._record({name: getattr(found, name) for name in _COUNTS})
        found._take_up()
        return found

    @property
    def failures(self) -> Path:
        """Where prompts without an answer are listed."""
        return self.path.with_name(f"{self.path.stem}.failures.jsonl")

    @property
    def kept(self) -> str:
        """What is there, in words."""
        return f"{self.path} holds {self.count} conversations"

    def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Append outcomes and record them; a failed attempt leaves nothing behind.

        Raises:
            OSError: the disk is full, or the like.
        """
        with interrupts_deferred():
            try:
                self._commit(outcomes)
            except OSError as error:
                said = f"{error.strerror}; {self.kept}, the same command goes on from there"
                raise OSError(error.errno, said, error.filename) from None

    def _commit(self, outcomes: Sequence[Outcome]) -> None:
        written = [conversation for outcome in outcomes for conversation in outcome.conversations]
        failed = [outcome for outcome in outcomes if outcome.reason is not None]
        new = not record_path(self.path).exists()
        try:
            sizes = {
                "size": _append(self.path, self.size, [as_line(conversation) for conversation in written]),
                "failures_size": _append(self.failures, self.failures_size, [_failure(outcome) for outcome in failed]),
            }
            counts = sizes | {
                "count": self.count + len(written),
                "tokens": self.tokens + sum(len(conversation.ids) for conversation in written),
                "cut": self.cut + sum(not conversation.complete for conversation in written),
                "failed": self.failed + len(failed),
            }
            self._record(counts)
        except BaseException:
            self._take_back(new)
            raise
        for name, value in counts.items():
            setattr(self, name, value)
        self.done.update(outcome.line for outcome in outcomes)

    def _record(self, counts: Mapping[str, int]) -> None:
        write_whole(record_path(self.path), json.dumps({**self.identity, **counts}, indent=1) + "\n")

    def _take_back(self, new: bool) -> None:
        """Both files as they were before."""
        for path, size in ((self.path, self.size), (self.failures, self.failures_size)):
            if path.exists() and new:
                path.unlink()
            elif path.exists():
                os.truncate(path, size)

    def _take_up(self) -> None:
        """Cut off what is not vouched for, and find out what is done."""
        for path, size in ((self.path, self.size), (self.failures, self.failures_size)):
            there = path.stat().st_size if path.is_file() else 0
            if there < size:
                raise InputError(f"{path} is shorter than {record_path(self.path).name} says; choose another name")
            if there > size:
                os.truncate(path, size)
        if self.size:
            self.done.update(conversation.line or 0 for conversation in read_conversations(self.path))
        if self.failures_size:
            lines = self.failures.read_text(encoding="utf-8").splitlines()
            self.done.update(json.loads(line)["line"] for line in lines)


def _append(path: Path, size: int, lines: Sequence[str]) -> int:
    """Append behind the first ``size`` bytes; returns the new size. A file without any line is not made."""
    if path.exists() and path.stat().st_size > size:
        os.truncate(path, size)
    if lines:
        append_lines(path, lines)
    return path.stat().st_size if path.exists() else 0


def _failure(outcome: Outcome) -> str:
    return json.dumps({"line": outcome.line, "reason": outcome.reason, "attempts": outcome.attempts}) + "\n"


def _changes(recorded: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """Names of what differs; of mappings, the fields inside."""
    names = []
    for name, now in identity.items():
        then = recorded[name]
        if isinstance(now, Mapping) and isinstance(then, Mapping):
            names += [f"{name} {key}" for key in {**then, **now} if then.get(key) != now.get(key)]
        elif then != now:
            names.append(name)
    return ", ".join(names)
