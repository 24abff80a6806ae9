"""Conversations that the target writes itself: user turns after the template's user header, then answers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dspark.core import InputError
from dspark.data.chat_format import ChatFormat
from dspark.data.conversation import Conversation
from dspark.data.duplicates import Duplicates, SeenTexts


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """One continuation the target is to write: sample after ``prompt`` until the token ``end`` or ``max_tokens``."""

    prompt: list[int]
    end: int
    max_tokens: int
    temperature: float
    seed: int


_T = TypeVar("_T")
Continue = Callable[[Sequence[Continuation]], list[list[int]]]
"""Writes many continuations at once; each result ends with the end token unless it was cut at its limit."""


@dataclass(frozen=True, kw_only=True)
class SynthesisConfig:
    """Recipe of self-written conversations.

    Attributes:
        domains: domain -> share of the conversations.
        languages: language of the openings -> share.
        systems: system prompt -> share; the empty text leaves the template to its own.
        temperatures: answer temperature -> share; greedy answers are what most users decode.
        user_temperature: at which user turns are sampled.
        user_lengths, answer_lengths: length limits (tokens) of the turns, one drawn per conversation.
        second_turn: probability of a second user turn after a complete first answer.
        max_tokens: longest conversation.
        thinking: answers start with thoughts, where the template knows of them.
        duplicates: which user turns are not answered because a conversation began with them already.
        seed: everything drawn depends on it and on the conversation's number alone.
    """

    domains: Mapping[str, float] = field(default_factory=lambda: {"chat": 0.4, "math": 0.3, "code": 0.3})
    languages: Mapping[str, float] = field(default_factory=lambda: {"en": 1.0})
    systems: Mapping[str, float] = field(default_factory=lambda: {"": 1.0})
    temperatures: Mapping[float, float] = field(default_factory=lambda: {0.0: 0.5, 0.3: 0.15, 0.7: 0.25, 1.0: 0.1})
    user_temperature: float = 1.0
    user_lengths: tuple[int, ...] = (64, 128, 160)
    answer_lengths: tuple[int, ...] = (96, 160, 224)
    second_turn: float = 0.3
    max_tokens: int = 384
    thinking: bool = False
    duplicates: Duplicates = Duplicates.NEAR
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("domains", "languages", "systems", "temperatures"):
            check_shares(name, getattr(self, name))
        if not all(0 <= temperature < math.inf for temperature in (*self.temperatures, self.user_temperature)):
            raise InputError(f"temperatures must be numbers >= 0, got {sorted(self.temperatures)}")
        for name in ("user_lengths", "answer_lengths"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise InputError(f"{name} must be numbers of tokens >= 1, got {getattr(self, name)}")
        if not 0 <= self.second_turn <= 1:
            raise InputError(f"second_turn must be a probability, got {self.second_turn}")


def check_shares(name: str, shares: Mapping[_T, float]) -> None:
    """See that shares can be drawn from.

    Raises:
        InputError: there are none, one is below zero or not finite, or all are zero.
    """
    values = list(shares.values())
    if not values or not all(0 <= share < math.inf for share in values) or not any(values):
        raise InputError(f"{name} need shares >= 0, at least one of them > 0, got {dict(shares)}")


@dataclass(frozen=True, kw_only=True)
class Material:
    """What conversations start from.

    Attributes:
        forms: system prompt -> skeleton of the target's chat template with it.
        openings: language -> domain -> token ids of openings.
        text_of: texts of token ids, for finding duplicates.
    """

    forms: Mapping[str, ChatFormat]
    openings: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]
    text_of: Callable[[Sequence[int]], str]

    def check(self, config: SynthesisConfig) -> None:
        """See that there is something to start every wanted conversation from.

        Raises:
            InputError: a language, domain or system prompt without material.
        """
        assert set(config.systems) <= set(self.forms)
        if missing := set(config.languages) - set(self.openings):
            raise InputError(f"no openings in the languages {sorted(missing)}; known are {sorted(self.openings)}")
        for language in config.languages:
            known = self.openings[language]
            if missing := set(config.domains) - set(known):
                raise InputError(f"no openings for the domains {sorted(missing)}; known are {sorted(known)}")

    def first_user_text(self, conversation: Conversation) -> str:
        """Text of the user turn that a conversation began with; of the whole prompt if no form fits."""
        fitting = [form for form in self.forms.values() if tuple(conversation.ids[: len(form.opening)]) == form.opening]
        longest = max(fitting or self.forms.values(), key=lambda form: len(form.opening))
        turns = longest.user_turns(conversation.ids, conversation.mask)
        return self.text_of(turns[0]) if turns else ""


class _Draft:
    """A conversation being written."""

    def __init__(self, number: int, config: SynthesisConfig, material: Material) -> None:
        self.rng = random.Random(f"{config.seed}/{number}")
        self.domain = pick(self.rng, config.domains)
        self.temperature = pick(self.rng, config.temperatures)
        self.user_limit = self.rng.choice(config.user_lengths)
        self.answer_limit = self.rng.choice(config.answer_lengths)
        second = self.rng.random() < config.second_turn
        self.form = material.forms[pick(self.rng, config.systems)]
        openings = material.openings[pick(self.rng, config.languages)]
        self.turns_left = 1 + (second and self.form.repeats)
        self.ids = [*self.form.opening, *self.rng.choice(openings[self.domain])]
        self.mask = [0] * len(self.ids)
        self.complete, self.dead = False, False
        self.size = 0  # up to the end of the last answer

    @property
    def user_turn(self) -> list[int]:
        """The first user turn, once it is there."""
        return self.ids[len(self.form.opening) : -1]

    def extend(self, ids: Sequence[int], *, learnt: bool) -> None:
        self.ids.extend(ids)
        self.mask.extend([int(learnt)] * len(ids))


def synthesize(
    numbers: Sequence[int],
    config: SynthesisConfig,
    material: Material,
    write: Continue,
    seen: SeenTexts | None = None,
) -> list[Conversation]:
    """Write the conversations with the given numbers.

    A user turn that does not end within its limit is dropped, and so is a first one that came before; an answer cut at
    its limit ends the conversation and is kept as incomplete.

    Args:
        numbers: conversation numbers; the same number gives the same draws, so a run can go on where it stopped.
        config: the recipe.
        material: skeletons of the target's chat template, and openings.
        write: lets the target write.
        seen: first user turns of earlier conversations; those of the new ones are added. None keeps duplicates.

    Returns:
        the conversations that came to at least one answer, in order.
    """
    material.check(config)
    drafts = [_Draft(number, config, material) for number in numbers]
    writing = drafts
    while writing:
        first = writing is drafts
        _user_turns(writing, config, write)
        writing = [draft for draft in writing if not draft.dead]
        if first and seen is not None:
            writing = [draft for draft in writing if seen.add(material.text_of(draft.user_turn)) is None]
        for draft in writing:
            draft.extend(draft.form.to_answer[1:], learnt=False)
        _answers(writing, config, write)
        writing = [draft for draft in writing if draft.complete and draft.turns_left > 0]
        for draft in writing:
            draft.extend(draft.form.to_user[1:], learnt=False)
    return [_finished(draft) for draft in drafts if any(draft.mask)]


def _user_turns(drafts: Sequence[_Draft], config: SynthesisConfig, write: Continue) -> None:
    """Let every draft get a user turn; mark those dead whose turn does not end."""
    temperatures = [config.user_temperature] * len(drafts)
    ends = [draft.form.user_end for draft in drafts]
    written = _write(drafts, ends, [draft.user_limit for draft in drafts], temperatures, config, write)
    for draft, end, ids in zip(drafts, ends, written, strict=True):
        draft.dead = not ids or ids[-1] != end
        if not draft.dead:
            draft.extend(ids, learnt=False)


def _answers(drafts: Sequence[_Draft], config: SynthesisConfig, write: Continue) -> None:
    """Let every draft get an answer."""
    temperatures = [draft.temperature for draft in drafts]
    ends = [draft.form.end for draft in drafts]
    written = _write(drafts, ends, [draft.answer_limit for draft in drafts], temperatures, config, write)
    for draft, end, ids in zip(drafts, ends, written, strict=True):
        draft.extend(ids, learnt=True)
        draft.complete = bool(ids) and ids[-1] == end
        draft.turns_left -= 1
        draft.size = len(draft.ids)


def _write(
    drafts: Sequence[_Draft],
    ends: Sequence[int],
    limits: Sequence[int],
    temperatures: Sequence[float],
    config: SynthesisConfig,
    write: Continue,
) -> list[list[int]]:
    """One continuation per draft, none where the conversation is full."""
    jobs = [
        Continuation(
            prompt=list(draft.ids),
            end=end,
            max_tokens=max(1, min(limit, config.max_tokens - len(draft.ids))),
            temperature=temperature,
            seed=draft.rng.getrandbits(48),
        )
        for draft, end, limit, temperature in zip(drafts, ends, limits, temperatures, strict=True)
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


def pick(rng: random.Random, shares: Mapping[_T, float]) -> _T:
    """Draw by shares; see :func:`check_shares`."""
    return rng.choices(list(shares), list(shares.values()))[0]
