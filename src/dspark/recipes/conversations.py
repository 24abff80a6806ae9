"""Conversations that the target writes through the engine, appended to a file that can be gone on with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark.core import InputError, SamplingParams
from dspark.core.whole_file import write_whole
from dspark.data.chat_format import ChatFormat
from dspark.data.conversation import Conversation, append_conversations, read_conversations
from dspark.data.duplicates import SeenTexts
from dspark.data.opening_texts import load_openings
from dspark.data.record import read_record, record_path
from dspark.data.synthesis import Continuation, Material, SynthesisConfig, synthesize
from dspark.engine import LLM
from dspark.engine.interrupts import interrupts_deferred
from dspark.recipes.recipe import WritingPlan

_PATIENCE = 8
"""Chunks that may come to nothing one after the other."""
_EARLIER = {"languages": {"en": 1.0}, "systems": {"": 1.0}, "thinking": False}
"""What a file was written with whose record does not say."""


class Writer:
    """Lets an engine write conversations.

    Raises:
        InputError: the target has no chat template that turns can be cut out of, or there are no openings of a domain
            or in a language that the plan asks for.
    """

    def __init__(self, llm: LLM, plan: WritingPlan) -> None:
        self._llm, self._plan = llm, plan
        self._material = _material(llm.loaded.tokenizer, plan.synthesis)
        self._material.check(plan.synthesis)
        self._seen = SeenTexts(plan.synthesis.duplicates)

    @property
    def target(self) -> str:
        """Name of the target that writes."""
        return self._llm.loaded.name

    def remember(self, conversations: Iterable[Conversation]) -> None:
        """Take note of conversations that exist already, so that none begins like them."""
        for conversation in conversations:
            self._seen.add(self._material.first_user_text(conversation))

    def write(self, numbers: Sequence[int]) -> list[Conversation]:
        """The conversations with these numbers, those left out that came to nothing or began like an earlier one."""
        return synthesize(numbers, self._plan.synthesis, self._material, self._continue, self._seen)

    def _continue(self, jobs: Sequence[Continuation]) -> list[list[int]]:
        outputs = self._llm.generate([job.prompt for job in jobs], [self._params(job) for job in jobs], progress=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def _params(self, job: Continuation) -> SamplingParams:
        return SamplingParams(
            temperature=job.temperature,
            top_k=self._plan.top_k,
            max_tokens=job.max_tokens,
            stop_token_ids=(job.end,),
            seed=job.seed,
        )


def _material(tokenizer: Any, config: SynthesisConfig) -> Material:
    """Forms and openings in a target's tokens."""
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    return Material(
        forms={system: ChatFormat.of(tokenizer, system=system, thinking=config.thinking) for system in config.systems},
        openings={
            language: {domain: [encode(text) for text in texts] for domain, texts in load_openings(language).items()}
            for language in config.languages
        },
        text_of=lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True),
    )


@dataclass(kw_only=True)
class Conversations:
    """A growing file of conversations, and beside it a record of how it came to be and how far it is.

    Whatever interrupts the writing, the file holds whole chunks when it is opened the next time.

    Attributes:
        path: the file.
        plan: how its conversations are written.
        wanted: how many conversations it shall hold at least; None if only tokens count.
        wanted_tokens: how many tokens it shall hold at least; None if only conversations count.
        target: who writes; None before the first chunk.
        next: number of the first conversation that has not been written.
        count, tokens: conversations and tokens in the file.
        size: bytes that the record vouches for.
    """

    path: Path
    plan: WritingPlan
    wanted: int | None
    wanted_tokens: int | None = None
    target: str | None = None
    next: int = 0
    count: int = 0
    tokens: int = 0
    size: int = 0

    @classmethod
    def open(
        cls, path: Path, plan: WritingPlan, *, wanted: int | None = None, wanted_tokens: int | None = None
    ) -> Conversations:
        """Begin a file, or take up one that was begun with the same plan.

        Raises:
            InputError: a foreign or damaged file, another plan, or nothing wanted.
        """
        if wanted is None and wanted_tokens is None:
            raise InputError("say how much to write, in conversations or in tokens")
        for what, number in (("conversations", wanted), ("tokens", wanted_tokens)):
            if number is not None and number < 1:
                raise InputError(f"the number of {what} must be >= 1, got {number}")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to write {path.name} into")
        if not record_path(path).exists():
            if path.exists():
                raise InputError(f"{path} exists, but not {record_path(path).name} beside it; choose another name")
            return cls(path=path, plan=plan, wanted=wanted, wanted_tokens=wanted_tokens)
        record = read_record(record_path(path), ["plan", "target", "next", "count", "size"])
        if not _same_plan(record["plan"], plan):
            raise InputError(f"{path} was begun with another recipe or seed; choose another name or the same options")
        counts = {name: record[name] for name in ("target", "next", "count", "size")}
        counts["tokens"] = record.get("tokens", 0)
        if not path.is_file() or path.stat().st_size < record["size"]:
            raise InputError(f"{path} is shorter than {record_path(path).name} says; choose another name")
        found = cls(path=path, plan=plan, wanted=wanted, wanted_tokens=wanted_tokens, **counts)
        found._cut()
        if "tokens" not in record:  # a file begun before tokens were recorded
            found.tokens = sum(len(conversation.ids) for conversation in read_conversations(path))
        return found

    def fill(self, writer: Writer, *, progress: Callable[[Conversations], None]) -> None:
        """Let the target write until the file is full; ``progress`` is told after every chunk.

        Raises:
            InputError: another target began the file, or the target's conversations come to nothing.
            KeyboardInterrupt: after Ctrl-C; what was finished stays.
        """
        if self.target not in (None, writer.target):
            raise InputError(f"{self.path} was begun with target {self.target!r}, not {writer.target!r}")
        self.target = writer.target
        if self.count:
            writer.remember(read_conversations(self.path))
        barren = 0
        try:
            while self.share < 1:
                barren = 0 if self._add_chunk(writer) else barren + 1
                if barren > _PATIENCE:
                    raise InputError(f"{self.path}: {self._no_harvest()}")
                progress(self)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; {self._kept()}") from None
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}; {self._kept()}", error.filename) from None

    @property
    def share(self) -> float:
        """How much of what is wanted is there."""
        wanted = ((self.count, self.wanted), (self.tokens, self.wanted_tokens))
        return min(there / goal for there, goal in wanted if goal is not None)

    def _kept(self) -> str:
        return f"{self.path} holds {self.count} conversations, the same command goes on from there"

    def _no_harvest(self) -> str:
        barren = f"nothing came of the last {_PATIENCE * self.plan.chunk} conversations that were begun"
        if not self.count:
            return f"{barren}, as no user turn came to an end; raise synthesis.user_lengths"
        return f"{barren}: no user turn came to an end, or all came before; raise synthesis.user_temperature"

    def _cut(self) -> None:
        """Drop what the record does not vouch for: the rest of a write that a kill cut in two."""
        if self.path.stat().st_size > self.size:
            os.truncate(self.path, self.size)

    def _add_chunk(self, writer: Writer) -> int:
        """Write one chunk; returns how many conversations came of it."""
        numbers = range(self.next, self.next + self.plan.chunk)
        written = writer.write(numbers)
        with interrupts_deferred():
            self._append(written, numbers.stop)
        return len(written)

    def _append(self, written: list[Conversation], following: int) -> None:
        """Append to the last whole chunk and record it; a failed attempt leaves nothing behind."""
        new = not record_path(self.path).exists()
        self.path.touch()
        try:
            os.truncate(self.path, self.size)
            append_conversations(self.path, written)
            counts = {
                "next": following,
                "count": self.count + len(written),
                "tokens": self.tokens + sum(len(conversation.ids) for conversation in written),
                "size": self.path.stat().st_size,
            }
            record = {"plan": _as_json(self.plan), "target": self.target, **counts}
            write_whole(record_path(self.path), json.dumps(record, indent=1) + "\n")
        except BaseException:
            os.truncate(self.path, self.size)
            if new:
                self.path.unlink()
            raise
        for name, value in counts.items():
            setattr(self, name, value)


def _as_json(plan: WritingPlan) -> Any:
    """The plan as it comes back from a file."""
    return json.loads(json.dumps(asdict(plan)))


def _same_plan(recorded: Any, plan: WritingPlan) -> bool:
    """Whether a file was begun with this plan.

    Options that did not exist then stood at what the program did then; duplicates may be looked for from now on.
    """
    now = _as_json(plan)
    synthesis = {**_EARLIER, "duplicates": now["synthesis"]["duplicates"], **recorded["synthesis"]}
    return bool({**recorded, "synthesis": synthesis} == now)
