"""The skeleton of a chat template: what stands around the contents of turns, as token ids.

Found by rendering the template around unmistakable contents, so that loss masks come from the template's structure and
never from searching rendered text for headers that a user may have typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark.core import InputError
from dspark.data.rendering import ChatTokenizer, check_end, render, tokenise, with_system

USER, ANSWER, NEXT = "\u2402user\u2403", "\u2402answer\u2403", "\u2402next\u2403"
THOUGHT = "\u2402thought\u2403"
"""Contents that no template contains."""


@dataclass(frozen=True, kw_only=True)
class ChatFormat:
    """Token ids around the contents of the turns.

    Attributes:
        opening: everything before the first user content (system prompt included).
        to_answer: from the end of a user content to where the answer starts.
        to_user: from the end of an answer to the start of the next user content.
        repeats: whether earlier turns stay as they were written when the conversation goes on; templates that leave
            out earlier thoughts have False.
    """

    opening: tuple[int, ...]
    to_answer: tuple[int, ...]
    to_user: tuple[int, ...]
    repeats: bool = True

    @property
    def user_end(self) -> int:
        """The token with which a user content ends."""
        return self.to_answer[0]

    @property
    def end(self) -> int:
        """The token with which an answer ends."""
        return self.to_user[0]

    @classmethod
    def of(cls, tokenizer: ChatTokenizer, *, system: str = "", thinking: bool = False) -> ChatFormat:
        """Read the format off a tokenizer's chat template.

        Raises:
            InputError: no template, or one that does not keep turns verbatim, in order and between special tokens.
        """
        opening, to_answer, to_user, repeats = skeleton(tokenizer, system=system, thinking=thinking)
        ids = [tuple(tokenise(tokenizer, part)) for part in (opening, to_answer, to_user)]
        if not ids[1]:
            raise InputError("the chat template does not mark the end of a user turn; give conversations instead")
        check_end(tokenizer, ids[1][0], "user turns")
        return cls(opening=ids[0], to_answer=ids[1], to_user=ids[2], repeats=repeats)

    def user_turns(self, ids: Sequence[int], mask: Sequence[int]) -> list[list[int]]:
        """Contents of the user turns of a conversation with a loss mask, as token ids."""
        found, start = [], self._begin(ids)
        for place in range(1, len(ids)):
            if mask[place] and not mask[place - 1]:
                found.append(list(ids[start : max(start, place - len(self.to_answer))]))
            if mask[place - 1] and not mask[place]:
                start = place + len(self.to_user) - 1
        return found

    def _begin(self, ids: Sequence[int]) -> int:
        """Where the first user content starts."""
        size = len(self.opening)
        return size if tuple(ids[:size]) == self.opening else 0


def skeleton(tokenizer: ChatTokenizer, *, system: str, thinking: bool) -> tuple[str, str, str, bool]:
    """Texts before the first user content, between it and the answer, after an answer; and whether turns repeat.

    Raises:
        InputError: no template, or one that does not keep the turns verbatim and in order.
    """
    turns = [("user", USER), ("assistant", ANSWER), ("user", NEXT)]
    asked = with_system(system, [{"role": role, "content": content} for role, content in turns])
    prompt = render(tokenizer, asked[:-2], answer_next=True, thinking=thinking)
    history = render(tokenizer, asked, answer_next=False, thinking=thinking)
    try:
        opening, to_answer = prompt.split(USER)
        before, rest = history.split(USER)
        between, rest = rest.split(ANSWER)
        to_user, _ = rest.split(NEXT)
    except ValueError:
        raise InputError("the chat template does not keep the turns verbatim; another template is needed") from None
    if not to_user:
        raise InputError("the chat template does not mark the end of an answer; another template is needed")
    check_end(tokenizer, tokenise(tokenizer, to_user)[0], "answers")
    repeats = (before, between) == (opening, to_answer) and _keeps_thoughts(tokenizer, asked, thinking)
    return opening, to_answer, to_user, repeats


def _keeps_thoughts(tokenizer: ChatTokenizer, asked: list[dict[str, str]], thinking: bool) -> bool:
    """Whether an earlier answer comes back with its thoughts."""
    thoughtful = [*asked[:-2], asked[-2] | {"content": f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"}, asked[-1]]
    return THOUGHT in render(tokenizer, thoughtful, answer_next=False, thinking=thinking)
