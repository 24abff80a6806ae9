"""Conversations that the target writes itself: user turns after the template's user header, then answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dspark.core import InputError
from dspark.data.chat_format import ChatFormat
from dspark.data.conversation import Conversation


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """One continuation the target is to write: sample after ``prompt`` until the turn's end token or ``max_tokens``."""

    prompt: list[int]
    max_tokens: int
    temperature: float
    seed: int


Continue = Callable[[Sequence[Continuation]], list[list[int]]]
"""Writes many continuations at once; each result ends with the end token unless it was cut at its limit."""


@dataclass(frozen=True, kw_only=True)
class SynthesisConfig:
    """Recipe of self-written conversations.

    Attributes:
        domains: domain -> share of the conversations.
        temperatures: answer temperature -> share; greedy answers are what most users decode.
        user_temperature: at which user turns are sampled.
        user_lengths, answer_lengths: length limits (tokens) of the turns, one drawn per conversation.
        second_turn: probability of a second user turn after a complete first answer.
        max_tokens: longest conversation.
        seed: everything drawn depends on it and on the conversation's number alone.
    """

    domains: Mapping[str, float] = field(default_factory=lambda: {"chat": 0.4, "math": 0.3, "code": 0.3})
    temperatures: Mapping[float, float] = field(default_factory=lambda: {0.0: 0.5, 0.3: 0.15, 0.7: 0.25, 1.0: 0.1})
    user_temperature: float = 1.0
    user_lengths: tuple[int, ...] = (64, 128, 160)
    answer_lengths: tuple[int, ...] = (96, 160, 224)
    second_turn: float = 0.3
    max_tokens: int = 384
    seed: int = 0


_Openings = Mapping[str, Sequence[Sequence[int]]]
_T = TypeVar("_T")


class _Draft:
    """A conversation being written."""

    def __init__(self, number: int, config: SynthesisConfig, form: ChatFormat, openings: _Openings) -> None:
        self.rng = random.Random(f"{config.seed}/{number}")
        self.domain = _pick(self.rng, config.domains)
        self.temperature = _pick(self.rng, config.temperatures)
        self.user_limit = self.rng.choice(config.user_lengths)
        self.answer_limit = self.rng.choice(config.answer_lengths)
        self.turns_left = 2 if self.rng.random() < config.second_turn else 1
        self.ids = [*form.opening, *self.rng.choice(openings[self.domain])]
        self.mask = [0] * len(self.ids)
        self.complete, self.dead = False, False
        self.size = 0  # up to the end of the last answer

    def extend(self, ids: Sequence[int], *, learnt: bool) -> None:
        self.ids.extend(ids)
        self.mask.extend([int(learnt)] * len(ids))


def synthesize(
    numbers: Sequence[int], config: SynthesisConfig, form: ChatFormat, openings: _Openings, write: Continue
) -> list[Conversation]:
    """Write the conversations with the given numbers.

    A user turn that does not end within its limit is dropped; an answer cut at its limit ends the
    conversation and is kept as incomplete.

    Args:
        numbers: conversation numbers; the same number gives the same draws, so a run can go on where it stopped.
        config: the recipe.
        form: skeleton of the target's chat template.
        openings: domain -> token ids of openings.
        write: lets the target write.

    Returns:
        the conversations that came to at least one answer, in order.
    """
    if missing := set(config.domains) - set(openings):
        raise InputError(f"no openings for the domains {sorted(missing)}; known are {sorted(openings)}")
    drafts = [_Draft(number, config, form, openings) for number in numbers]
    writing = drafts
    while writing:
        _user_turns(writing, config, form, write)
        writing = [draft for draft in writing if not draft.dead]
        _answers(writing, config, form, write)
        writing = [draft for draft in writing if draft.complete and draft.turns_left > 0]
        for draft in writing:
            draft.extend(form.to_user[1:], learnt=False)
    return [_finished(draft) for draft in drafts if any(draft.mask)]


def _user_turns(drafts: Sequence[_Draft], config: SynthesisConfig, form: ChatFormat, write: Continue) -> None:
    """Let every draft get a user turn; mark those dead whose turn does not end."""
    temperatures = [config.user_temperature] * len(drafts)
    written = _write(drafts, [draft.user_limit for draft in drafts], temperatures, config, write)
    for draft, ids in zip(drafts, written, strict=True):
        draft.dead = not ids or ids[-1] != form.end
        if not draft.dead:
            draft.extend([*ids, *form.to_answer[1:]], learnt=False)


def _answers(drafts: Sequence[_Draft], config: SynthesisConfig, form: ChatFormat, write: Continue) -> None:
    """Let every draft get an answer."""
    temperatures = [draft.temperature for draft in drafts]
    written = _write(drafts, [draft.answer_limit for draft in drafts], temperatures, config, write)
    for draft, ids in zip(drafts, written, strict=True):
        draft.extend(ids, learnt=True)
        draft.complete = bool(ids) and ids[-1] == form.end
        draft.turns_left -= 1
        draft.size = len(draft.ids)


def _write(
    drafts: Sequence[_Draft],
    limits: Sequence[int],
    temperatures: Sequence[float],
    config: SynthesisConfig,
    write: Continue,
) -> list[list[int]]:
    """One continuation per draft, none where the conversation is full."""
    jobs = [
        Continuation(
            prompt=list(draft.ids),
            max_tokens=max(1, min(limit, config.max_tokens - len(draft.ids))),
            temperature=temperature,
            seed=draft.rng.getrandbits(48),
        )
        for draft, limit, temperature in zip(drafts, limits, temperatures, strict=True)
    ]
    return write(jobs) if jobs else []


def _finished(draft: _Draft) -> Conversation:
    return Conversation(
        ids=draft.ids[: draft.size],
        mask=draft.mask[: draft.size],
        domain=draft.domain,
        temperature=draft.temperature,
        complete=draft.complete,
    )


def _pick(rng: random.Random, shares: Mapping[_T, float]) -> _T:
    return rng.choices(list(shares), list(shares.values()))[0]
