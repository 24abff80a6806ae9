"""Conversations that the target writes through the engine, appended to a file that can be gone on with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark.core import InputError, SamplingParams
from dspark.data.chat_format import ChatFormat
from dspark.data.conversation import Conversation, append_conversations
from dspark.data.openings import load_openings
from dspark.data.synthesis import Continuation, synthesize
from dspark.engine import LLM
from dspark.engine.interrupts import interrupts_deferred
from dspark.evaluation.files import write_whole
from dspark.recipes.recipe import WritingPlan


class Writer:
    """Lets an engine write conversations.

    Raises:
        InputError: the target has no chat template that turns can be cut out of.
    """

    def __init__(self, llm: LLM, plan: WritingPlan) -> None:
        self._llm, self._plan = llm, plan
        tokenizer = llm.loaded.tokenizer
        self._form = ChatFormat.of(tokenizer)
        self._openings = {
            domain: [tokenizer.encode(text, add_special_tokens=False) for text in texts]
            for domain, texts in load_openings().items()
        }

    @property
    def target(self) -> str:
        """Name of the target that writes."""
        return self._llm.loaded.name

    def write(self, numbers: Sequence[int]) -> list[Conversation]:
        """The conversations with these numbers, those left out that came to nothing."""
        return synthesize(numbers, self._plan.synthesis, self._form, self._openings, self._continue)

    def _continue(self, jobs: Sequence[Continuation]) -> list[list[int]]:
        outputs = self._llm.generate([job.prompt for job in jobs], [self._params(job) for job in jobs], progress=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def _params(self, job: Continuation) -> SamplingParams:
        return SamplingParams(
            temperature=job.temperature,
            top_k=self._plan.top_k,
            max_tokens=job.max_tokens,
            stop_token_ids=(self._form.end,),
            seed=job.seed,
        )


@dataclass(kw_only=True)
class Conversations:
    """A growing file of conversations, and beside it a record of how it came to be and how far it is.

    Whatever interrupts the writing, the file holds whole chunks when it is opened the next time.

    Attributes:
        path: the file.
        plan: how its conversations are written.
        wanted: how many it shall hold at least.
        target: who writes; None before the first chunk.
        next: number of the first conversation that has not been written.
        count: conversations in the file.
        size: bytes that the record vouches for.
    """

    path: Path
    plan: WritingPlan
    wanted: int
    target: str | None = None
    next: int = 0
    count: int = 0
    size: int = 0

    @classmethod
    def open(cls, path: Path, plan: WritingPlan, *, wanted: int) -> Conversations:
        """Begin a file, or take up one that was begun with the same plan.

        Raises:
            InputError: a foreign or damaged file, another plan, or nothing wanted.
        """
        if wanted < 1:
            raise InputError(f"the number of conversations must be >= 1, got {wanted}")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to write {path.name} into")
        if not record_path(path).exists():
            if path.exists():
                raise InputError(f"{path} exists, but not {record_path(path).name} beside it; choose another name")
            return cls(path=path, plan=plan, wanted=wanted)
        record = _read_record(record_path(path))
        if record["plan"] != _as_json(plan):
            raise InputError(f"{path} was begun with another recipe or seed; choose another name or the same options")
        counts = {name: record[name] for name in ("target", "next", "count", "size")}
        if not path.is_file() or path.stat().st_size < record["size"]:
            raise InputError(f"{path} is shorter than {record_path(path).name} says; choose another name")
        return cls(path=path, plan=plan, wanted=wanted, **counts)

    def fill(self, writer: Writer, *, progress: Callable[[int, str], None]) -> None:
        """Let the target write until the file is full.

        Raises:
            InputError: another target began the file, or the target's conversations come to nothing.
            KeyboardInterrupt: after Ctrl-C; what was finished stays.
        """
        if self.target not in (None, writer.target):
            raise InputError(f"{self.path} was begun with target {self.target!r}, not {writer.target!r}")
        self.target = writer.target
        try:
            while self.count < self.wanted:
                self._add_chunk(writer)
                progress(self.count, f"{self.next} begun")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted; {self.path} holds {self.count} conversations, the same command goes on from there"
            ) from None

    def _add_chunk(self, writer: Writer) -> None:
        numbers = range(self.next, self.next + self.plan.chunk)
        written = writer.write(numbers)
        if not written and self.next >= 8 * self.plan.chunk and not self.count:
            raise InputError(
                "none of the user turns that the target began came to an end; raise synthesis.user_lengths"
            )
        with interrupts_deferred():
            self._append(written, numbers.stop)

    def _append(self, written: list[Conversation], following: int) -> None:
        """Append to the last whole chunk and record it; a failed attempt leaves nothing behind."""
        new = not record_path(self.path).exists()
        self.path.touch()
        try:
            os.truncate(self.path, self.size)
            append_conversations(self.path, written)
            counts = {"next": following, "count": self.count + len(written), "size": self.path.stat().st_size}
            record = {"plan": _as_json(self.plan), "target": self.target, **counts}
            write_whole(record_path(self.path), json.dumps(record, indent=1) + "\n")
        except BaseException:
            os.truncate(self.path, self.size)
            if new:
                self.path.unlink()
            raise
        self.next, self.count, self.size = counts["next"], counts["count"], counts["size"]


def record_path(path: Path) -> Path:
    """Where the record of a file of conversations is."""
    return path.with_name(f"{path.stem}.record.json")


def _as_json(plan: WritingPlan) -> Any:
    """The plan as it comes back from a file."""
    return json.loads(json.dumps(asdict(plan)))


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        missing = {"plan", "target", "next", "count", "size"} - set(record)
    except (ValueError, TypeError):
        missing = {"everything"}
    if missing:
        raise InputError(f"{path} is no record of conversations; choose another name")
    return dict(record)
