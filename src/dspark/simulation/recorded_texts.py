"""Texts whose blocks were recorded: of every place of an answer, or of the rounds that an engine made.

**By place.** Entry n - 1 is the block drafted when the answer had n tokens. Recorded greedily this is exact: whatever a
policy does, the drafter sees the same text at the same place.

**By round.** Entry i is round i of the answer as it was recorded; a policy that needs more rounds starts again from the
first. With the policy that recorded (whole blocks), the recording is repeated as it was. With others rounds are taken
to be alike within an answer, which rounds behind a rejection are not quite.

The file is JSON lines, one answer each: ``{"prompt": tokens, "answer": tokens, "max_tokens": limit, "by": "place" or
"round", "proposed": [..], "accepted": [..], "confidence": [[..], ..] or null}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dspark.calibration import Rounds
from dspark.core import InputError
from dspark.core.whole_file import write_whole
from dspark.scheduling.step_view import Floats, Ints
from dspark.simulation.texts import Blocks, Lengths

By = Literal["place", "round"]


@dataclass(frozen=True, kw_only=True)
class RecordedText:
    """One answer. N blocks of G slots.

    Attributes:
        prompt, answer, max_tokens: its lengths in tokens.
        by: what a block belongs to.
        proposed: [N] drafts of each block.
        accepted: [N] drafts that were, or would have been, accepted.
        confidence: [N, G] what the confidence head said; None without one. A block shorter than G says 0 of the rest.

    Raises:
        InputError: the arrays do not fit each other or the answer.
    """

    prompt: int
    answer: int
    max_tokens: int
    by: By
    proposed: Ints
    accepted: Ints
    confidence: Floats | None

    def __post_init__(self) -> None:
        if self.by not in ("place", "round"):
            raise InputError(f"blocks are recorded by 'place' or by 'round', got {self.by!r}")
        least = self.answer - 1 if self.by == "place" else min(self.answer - 1, 1)
        if self.accepted.ndim != 1 or len(self.accepted) < least:
            raise InputError(
                f"an answer of {self.answer} tokens, recorded by {self.by}, needs {least} blocks or more, got "
                f"{len(self.accepted)}"
            )
        shape = None if self.confidence is None else self.confidence.shape
        if shape is not None and (len(shape) != 2 or shape[0] != len(self.accepted)):
            raise InputError(f"confidence must be [{len(self.accepted)}, G], got {list(shape)}")
        if self.proposed.shape != self.accepted.shape or ((self.accepted < 0) | (self.accepted > self.proposed)).any():
            raise InputError("accepted drafts must be from 0 to the proposed ones, block by block")

    @classmethod
    def of_rounds(cls, rounds: Rounds, *, prompt: int, answer: int, max_tokens: int) -> RecordedText:
        """Rounds of one answer whose blocks were verified whole.

        Args:
            rounds: in their order.
            prompt, answer, max_tokens: lengths in tokens.
        """
        return cls(
            prompt=prompt,
            answer=answer,
            max_tokens=max_tokens,
            by="round",
            proposed=(~np.isnan(rounds.confidence)).sum(axis=1),
            accepted=rounds.accepted,
            confidence=np.nan_to_num(rounds.confidence, nan=0.0),
        )

    def to_json(self) -> str:
        """One line."""
        confidence = None if self.confidence is None else np.round(self.confidence, 5).tolist()
        fields = {"prompt": self.prompt, "answer": self.answer, "max_tokens": self.max_tokens, "by": self.by}
        blocks = {"proposed": self.proposed.tolist(), "accepted": self.accepted.tolist(), "confidence": confidence}
        return json.dumps(fields | blocks, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> RecordedText:
        """Back from a line.

        Raises:
            InputError: it is no recorded answer.
        """
        try:
            raw: dict[str, Any] = json.loads(line)
            confidence = raw["confidence"]
            return cls(
                prompt=int(raw["prompt"]),
                answer=int(raw["answer"]),
                max_tokens=int(raw["max_tokens"]),
                by=raw["by"],
                proposed=np.array(raw["proposed"], np.int64),
                accepted=np.array(raw["accepted"], np.int64),
                confidence=None if confidence is None else np.array(confidence, np.float64),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"it is no recorded answer ({type(error).__name__}: {error})") from None


class RecordedTexts:
    """M requests that repeat recorded answers.

    Args:
        answers: the recordings, at least one; all with confidences of one block size, or all without.
        block_size: G, at least the longest recorded block.
        order: [M] which answer each request repeats; None for each once.

    Raises:
        InputError: the answers do not fit each other.
    """

    def __init__(self, answers: Sequence[RecordedText], block_size: int, order: Ints | None = None) -> None:
        if not answers:
            raise InputError("there are no recorded answers")
        widths = {None if answer.confidence is None else answer.confidence.shape[1] for answer in answers}
        if len(widths) > 1:
            raise InputError("recorded answers must all have confidences of one block size, or none")
        (width,) = widths
        self.block_size, self._order = block_size, np.arange(len(answers)) if order is None else order
        counts = np.array([len(answer.accepted) for answer in answers])
        self._starts, self._counts = np.cumsum(counts) - counts, np.maximum(counts, 1)
        self._by_round = np.array([answer.by == "round" for answer in answers])
        self._proposed = np.concatenate([answer.proposed for answer in answers]).clip(max=block_size)
        self._accepted = np.concatenate([answer.accepted for answer in answers]).clip(max=block_size)
        self._confidence: Floats | None = None
        if width is not None:
            joined = np.concatenate([answer.confidence for answer in answers if answer.confidence is not None])
            self._confidence = np.pad(joined, ((0, 0), (0, max(block_size - width, 0))))[:, :block_size]
        self.lengths = Lengths(
            prompt=np.array([answer.prompt for answer in answers]),
            answer=np.array([answer.answer for answer in answers]),
            max_tokens=np.array([answer.max_tokens for answer in answers]),
        ).take(self._order)

    @property
    def has_confidence(self) -> bool:
        """See :class:`~dspark.simulation.texts.Texts`."""
        return self._confidence is not None

    def blocks(self, texts: Ints, outputs: Ints, rounds: Ints) -> Blocks:
        """See :class:`~dspark.simulation.texts.Texts`."""
        answers = self._order[texts]
        entries = np.where(self._by_round[answers], rounds % self._counts[answers], outputs - 1)
        places = self._starts[answers] + entries
        return Blocks(
            proposed=self._proposed[places],
            would_accept=self._accepted[places],
            confidence=None if self._confidence is None else self._confidence[places],
        )


def read_recordings(file: str | Path) -> tuple[RecordedText, ...]:
    """Read a file of recorded answers.

    Raises:
        InputError: it cannot be read, is empty, or a line of it is no recorded answer.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the recorded answers {file}: {error}") from None
    answers = []
    for number, line in enumerate(lines, start=1):
        try:
            answers.append(RecordedText.from_json(line))
        except InputError as error:
            raise InputError(f"{file}, line {number}: {error}") from None
    if not answers:
        raise InputError(f"{file} holds no recorded answers")
    return tuple(answers)


def write_recordings(file: Path, answers: Iterable[RecordedText]) -> None:
    """Write a file of recorded answers, whole or not at all."""
    write_whole(file, "".join([f"{answer.to_json()}\n" for answer in answers]))
