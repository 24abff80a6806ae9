"""A conversation whose user turns are given and whose answers are being written."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.core import InputError
from dspark.data.chat_template import ChatTemplate
from dspark.data.conversation import Conversation
from dspark.data.prompt_turns import BadPromptError, PromptTurns
from dspark.data.rendering import with_system


@dataclass
class _Part:
    """One training sequence: what the target saw, and what it wrote (mask 1)."""

    ids: list[int]
    mask: list[int]


class Dialogue:
    """Asks the turns of a prompt one by one and keeps what the target read and wrote.

    Whatever the target wrote is learnt from behind the very prompt it was written after. Where a template changes
    earlier turns when the conversation goes on (it leaves out thoughts, or a text comes back in other tokens), the
    following turn starts a sequence of its own, of which only the new answer is learnt.

    Args:
        turns: the user's side.
        template: the target's.
        temperature: of its answers.
        domain: where the source names none.
        max_tokens: longest conversation.
        system: system prompt instead of the source's; None keeps that.
    """

    def __init__(
        self,
        turns: PromptTurns,
        template: ChatTemplate,
        *,
        temperature: float,
        domain: str,
        max_tokens: int,
        system: str | None = None,
    ) -> None:
        self.turns, self.temperature = turns, temperature
        self._template, self._max_tokens = template, max_tokens
        self._domain = turns.domain or domain
        self.messages = with_system(turns.system if system is None else system, [])
        self._asked, self._complete, self._over = 0, True, False
        self._parts: list[_Part] = []

    @property
    def asked(self) -> int:
        """How many user turns have been asked."""
        return self._asked

    def ask(self) -> list[int] | None:
        """Token ids up to where the target has to answer the next user turn; None when the conversation is over.

        Raises:
            BadPromptError: the first prompt leaves no room for an answer, or the template refuses it.
        """
        if self._over or self._asked == len(self.turns.users):
            return None
        self.messages.append({"role": "user", "content": self.turns.users[self._asked]})
        try:
            ids = self._template.prompt(self.messages)
        except InputError as refused:
            raise BadPromptError(str(refused)) from None
        if len(ids) >= self._max_tokens:
            if not self._parts:
                raise BadPromptError(f"the prompt has {len(ids)} tokens, no answer fits into {self._max_tokens}")
            self._over = True
            return None
        self._asked += 1
        self._show(ids)
        return list(ids)

    def room(self) -> int:
        """Most tokens that the next answer may have."""
        return self._max_tokens - len(self._parts[-1].ids)

    def answer(self, ids: list[int], text: str, *, complete: bool) -> None:
        """Take an answer.

        Args:
            ids: what the target wrote, the end token included if it wrote one.
            text: the answer as it comes back in the next prompt.
            complete: whether it ended by itself; a cut one ends the conversation.

        Raises:
            BadPromptError: there is nothing in it.
        """
        if not text.strip() or not ids:
            raise BadPromptError(f"the answer to turn {self._asked} is empty")
        if len(ids) > self.room():
            ids, complete = ids[: self.room()], False
        part = self._parts[-1]
        part.ids.extend(ids)
        part.mask.extend([1] * len(ids))
        self.messages.append({"role": "assistant", "content": text})
        self._complete, self._over = complete, not complete

    def conversations(self) -> list[Conversation]:
        """The training sequences."""
        last = len(self._parts) - 1
        return [
            Conversation(
                ids=part.ids,
                mask=part.mask,
                domain=self._domain,
                temperature=self.temperature,
                complete=number < last or self._complete,
                line=self.turns.line,
            )
            for number, part in enumerate(self._parts)
        ]

    def _show(self, ids: list[int]) -> None:
        """Go on with the last sequence if the prompt does, else begin another."""
        known = self._parts[-1].ids if self._parts else []
        if known and ids[: len(known)] == known:
            new = ids[len(known) :]
            self._parts[-1].ids.extend(new)
            self._parts[-1].mask.extend([0] * len(new))
        else:
            self._parts.append(_Part(list(ids), [0] * len(ids)))
