"""Prompts and answers of a target as the token ids it reads and writes, thinking included."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.core import InputError
from dspark.data.chat_format import ANSWER, THOUGHT, USER, skeleton
from dspark.data.rendering import ChatTokenizer, Messages, render, tokenise

_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """How one target is spoken to.

    Attributes:
        tokenizer: its tokenizer.
        thinking: whether the template is asked for answers that start with thoughts.
        end: token with which an answer ends.
        switches: whether the template can be asked to think or not.
        opened: whether its prompts end inside an opened thought already.
        before_thought, after_thought: what the target writes around its thoughts.
    """

    tokenizer: ChatTokenizer
    thinking: bool
    end: int
    switches: bool
    opened: bool
    before_thought: str
    after_thought: str

    @classmethod
    def of(cls, tokenizer: ChatTokenizer, *, thinking: bool = False) -> ChatTemplate:
        """Read it off a tokenizer's chat template.

        Raises:
            InputError: no template, or one whose turns cannot be told apart by its structure.
        """
        _, to_answer, to_user, _ = skeleton(tokenizer, system="", thinking=thinking)
        other = skeleton(tokenizer, system="", thinking=not thinking)[1]
        opened = _OPEN in to_answer and _CLOSE not in to_answer
        before, after = _around_thoughts(tokenizer, to_answer, thinking) or (
            "" if opened else f"{_OPEN}\n",
            f"\n{_CLOSE}\n\n",
        )
        return cls(
            tokenizer=tokenizer,
            thinking=thinking,
            end=tokenise(tokenizer, to_user)[0],
            switches=other != to_answer,
            opened=opened,
            before_thought=before,
            after_thought=after,
        )

    @property
    def thinks(self) -> bool:
        """Whether every answer starts with thoughts."""
        return self.opened or (self.switches and self.thinking)

    def prompt(self, messages: Messages) -> list[int]:
        """Token ids of a conversation up to where the target has to answer.

        Raises:
            InputError: the template refuses the messages.
        """
        return tokenise(self.tokenizer, render(self.tokenizer, messages, answer_next=True, thinking=self.thinking))

    def answer(self, content: str, thoughts: str | None = None, *, complete: bool) -> list[int]:
        """The ids a target wrote when this is the text that came of it; with the end token if it is complete.

        Markers inside are text that the target spelt out, as its own markers never come through as text.

        Raises:
            InputError: thoughts are missing where the template has them, or there are some where it has none.
        """
        ids = self.tokenizer.encode(
            self._written(content, thoughts, complete), add_special_tokens=False, split_special_tokens=True
        )
        return [*ids, self.end] if complete else ids

    def _written(self, content: str, thoughts: str | None, complete: bool) -> str:
        if not self.thinks:
            if thoughts:
                raise InputError("the answer came with thoughts, which were not asked for; turn thinking on")
            return content
        if thoughts:
            closed = complete or bool(content)
            written = self.before_thought + thoughts.strip("\n")
            return written + self.after_thought + content.lstrip("\n") if closed else written
        if _CLOSE not in content and complete:
            raise InputError("the answer came without its thoughts; let the server send them, or turn thinking off")
        return content.removeprefix(f"{_OPEN}\n") if self.opened else content


def _around_thoughts(tokenizer: ChatTokenizer, to_answer: str, thinking: bool) -> tuple[str, str] | None:
    """What the template itself writes around thoughts; None if it does not render any after this prompt."""
    messages = [
        {"role": "user", "content": USER},
        {"role": "assistant", "content": ANSWER, "reasoning_content": THOUGHT},
    ]
    written = render(tokenizer, messages, answer_next=False, thinking=thinking).partition(USER)[2]
    head, thought, rest = written.removeprefix(to_answer).partition(THOUGHT)
    between, answer, _ = rest.partition(ANSWER)
    return (head, between) if thought and answer and written.startswith(to_answer) else None
