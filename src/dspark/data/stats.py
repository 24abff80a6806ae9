"""What is in files of conversations: counts, lengths, how much is learnt, which tokens, which doubles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Any

import numpy as np

from dspark.core import InputError
from dspark.data.conversation import Conversation
from dspark.data.duplicates import Duplicates, SeenTexts

VOCABULARIES = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
"""Sizes of a draft vocabulary."""
_PERCENTILES = {"shortest": 0, "median": 50, "p90": 90, "p99": 99, "longest": 100}


@dataclass(kw_only=True)
class Group:
    """Sums over some of the conversations.

    Attributes:
        conversations, complete: how many, and how many of them end with a complete answer.
        answers: answers in them.
        tokens, learnt: tokens, and those of them that are learnt.
    """

    conversations: int = 0
    complete: int = 0
    answers: int = 0
    tokens: int = 0
    learnt: int = 0

    def add(self, conversation: Conversation, answers: Sequence[int]) -> None:
        """Count one with answers of so many tokens."""
        self.conversations += 1
        self.complete += conversation.complete
        self.answers += len(answers)
        self.tokens += len(conversation.ids)
        self.learnt += sum(answers)

    def as_dict(self) -> dict[str, Any]:
        """Numbers by name."""
        coverage = round(self.learnt / self.tokens, 4) if self.tokens else 0.0
        return {**vars(self), "mask_coverage": coverage}


@dataclass(kw_only=True)
class Stats:
    """What is in some conversations.

    Attributes:
        total: all of them.
        groups: kind of group (domain, temperature, ended) -> its name -> sums.
        lengths, answer_lengths: tokens per conversation and per answer.
        counts: how often each token is learnt.
        duplicates: conversations whose prompt is that of an earlier one, by kind.
        without_answer: conversations of which nothing is learnt.
    """

    total: Group = field(default_factory=Group)
    groups: dict[str, dict[str, Group]] = field(default_factory=lambda: {"domain": {}, "temperature": {}, "ended": {}})
    lengths: list[int] = field(default_factory=list)
    answer_lengths: list[int] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    duplicates: dict[str, int] = field(default_factory=lambda: {"exact": 0})
    without_answer: int = 0

    def coverage(self) -> dict[int, float]:
        """Share of the learnt tokens that the most frequent V tokens are, by V."""
        found = np.array(sorted(self.counts.values(), reverse=True), np.int64)
        shares = np.cumsum(found) / max(1, int(found.sum()))
        sizes = [size for size in VOCABULARIES if size < len(found)] if len(found) else []
        return {size: float(shares[size - 1]) for size in sizes} | ({len(found): 1.0} if len(found) else {})

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            **self.total.as_dict(),
            **{
                f"by_{kind}": {name: group.as_dict() for name, group in sorted(groups.items())}
                for kind, groups in self.groups.items()
            },
            "conversation_tokens": percentiles(self.lengths),
            "answer_tokens": percentiles(self.answer_lengths),
            "draft_vocabulary_coverage": {str(size): round(share, 5) for size, share in self.coverage().items()},
            "duplicate_prompts": self.duplicates,
            "without_answer": self.without_answer,
        }


def measure(
    conversations: Iterable[Conversation],
    *,
    text_of: Callable[[Sequence[int]], str] | None = None,
    vocab_size: int | None = None,
) -> Stats:
    """Go through conversations once.

    Args:
        conversations: what to measure.
        text_of: text of a prompt; finds duplicates that are nearly the same. None finds exact ones only.
        vocab_size: how many tokens the target has, if that is known.

    Raises:
        InputError: a token that the target does not have.
    """
    stats, prompts = Stats(), set[bytes]()
    near = SeenTexts(Duplicates.NEAR) if text_of is not None else None
    if near is not None:
        stats.duplicates["near"] = 0
    for number, conversation in enumerate(conversations, start=1):
        if vocab_size is not None and max(conversation.ids, default=0) >= vocab_size:
            raise InputError(
                f"conversation {number} has the token {max(conversation.ids)}, but the target's ids end at "
                f"{vocab_size - 1}; was it written by another target?"
            )
        _count(stats, conversation)
        prompt = _prompt(conversation)
        key = blake2b(np.asarray(prompt, np.int64).tobytes(), digest_size=16).digest()
        if key in prompts:
            stats.duplicates["exact"] += 1
        elif near is not None and text_of is not None and near.add(text_of(prompt)) is not None:
            stats.duplicates["near"] += 1
        prompts.add(key)
    return stats


def percentiles(numbers: Sequence[int]) -> dict[str, float]:
    """Mean and a few percentiles."""
    if not numbers:
        return {}
    values = np.percentile(numbers, list(_PERCENTILES.values()), method="nearest")
    named = {name: float(value) for name, value in zip(_PERCENTILES, values, strict=True)}
    return {"mean": round(float(np.mean(numbers)), 1), **named}


def _count(stats: Stats, conversation: Conversation) -> None:
    names = {
        "domain": conversation.domain,
        "temperature": f"{conversation.temperature:g}",
        "ended": "complete" if conversation.complete else "cut",
    }
    answers = [sum(1 for _ in run) for learnt, run in groupby(conversation.mask) if learnt]
    for kind, name in names.items():
        stats.groups[kind].setdefault(name, Group()).add(conversation, answers)
    stats.total.add(conversation, answers)
    stats.lengths.append(len(conversation.ids))
    stats.answer_lengths += answers
    stats.counts.update(token for token, learnt in zip(conversation.ids, conversation.mask, strict=True) if learnt)
    stats.without_answer += not answers


def _prompt(conversation: Conversation) -> list[int]:
    """What stands before the first learnt token."""
    return conversation.ids[: conversation.mask.index(1)] if 1 in conversation.mask else conversation.ids
