"""How prompts are answered anew, and what comes of each."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from dspark.core import InputError
from dspark.data.chat_template import ChatTemplate
from dspark.data.conversation import Conversation
from dspark.data.dialogue import Dialogue
from dspark.data.prompt_turns import PromptTurns
from dspark.data.synthesis import SynthesisConfig, check_shares, pick


@dataclass(frozen=True, kw_only=True)
class RegenerationPlan:
    """How prompts are answered.

    Attributes:
        temperatures: temperature of a conversation's answers -> share.
        top_k: likeliest tokens that are sampled from; 0 for all.
        top_p: smallest set of tokens that is sampled from, as a probability.
        answer_tokens: longest answer.
        max_tokens: longest conversation.
        thinking: answers start with thoughts, where the template knows of them.
        system: system prompt instead of the source's; None keeps that.
        domain: where a prompt names none.
        seed: everything drawn depends on it, on the prompt's line and on the turn alone.
    """

    domain: str
    temperatures: Mapping[float, float] = field(default_factory=lambda: SynthesisConfig().temperatures)
    top_k: int = 0
    top_p: float = 1.0
    answer_tokens: int = 1024
    max_tokens: int = 4096
    thinking: bool = False
    system: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_shares("temperatures", self.temperatures)
        for name, least in (("answer_tokens", 1), ("max_tokens", 2), ("top_k", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be >= {least}, got {getattr(self, name)}")

    def dialogue(self, turns: PromptTurns, template: ChatTemplate, max_tokens: int | None = None) -> Dialogue:
        """The conversation that begins with a prompt; ``max_tokens`` where the writer holds less than the plan."""
        draws = random.Random(f"{self.seed}/{turns.line}")
        return Dialogue(
            turns,
            template,
            temperature=pick(draws, self.temperatures),
            domain=self.domain,
            max_tokens=min(self.max_tokens, max_tokens or self.max_tokens),
            system=self.system,
        )

    def seed_of(self, dialogue: Dialogue) -> int:
        """Seed of the answer to the turn that was asked last."""
        return random.Random(f"{self.seed}/{dialogue.turns.line}/{dialogue.asked}").getrandbits(31)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a prompt: conversations, or the reason why there are none.

    Attributes:
        line: the prompt's line.
        conversations: training sequences; empty for a failure.
        reason: why it failed; None if it did not.
        attempts: how often its last answer was asked for.
        lost: whether the writer could not be reached; that may say nothing about the prompt.
    """

    line: int
    conversations: tuple[Conversation, ...] = ()
    reason: str | None = None
    attempts: int = 1
    lost: bool = False
