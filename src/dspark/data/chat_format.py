"""The skeleton of a chat template: what stands between the contents of two turns, as token ids.

Found by rendering the template around unmistakable contents, so that loss masks come from the template's structure and
never from searching rendered text for headers that a user may have typed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from dspark.core import InputError

_USER, _ANSWER, _NEXT = "\u2402user\u2403", "\u2402answer\u2403", "\u2402next\u2403"


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is needed here."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any:
        """Render a conversation."""
        ...

    def encode(self, text: str, **options: Any) -> list[int]:
        """Tokenise."""
        ...


@dataclass(frozen=True, kw_only=True)
class ChatFormat:
    """Token ids around the contents of the turns.

    Attributes:
        opening: everything before the first user content (system prompt included).
        to_answer: from the end of a user content to the start of the answer.
        to_user: from the end of an answer to the start of the next user content.
        end: the token with which both a user content and an answer end.
    """

    opening: tuple[int, ...]
    to_answer: tuple[int, ...]
    to_user: tuple[int, ...]
    end: int

    @classmethod
    def of(cls, tokenizer: ChatTokenizer) -> ChatFormat:
        """Read the format off a tokenizer's chat template.

        Raises:
            InputError: no template, or one that does not keep turns verbatim and in order.
        """
        text = _render(tokenizer)
        try:
            opening, rest = text.split(_USER)
            to_answer, rest = rest.split(_ANSWER)
            to_user, _ = rest.split(_NEXT)
        except ValueError:
            raise InputError("the chat template does not keep the turns verbatim; give conversations instead") from None
        ids = [tuple(tokenizer.encode(part, add_special_tokens=False)) for part in (opening, to_answer, to_user)]
        if not ids[1] or not ids[2] or ids[1][0] != ids[2][0]:
            raise InputError("the chat template ends user turns and answers differently; give conversations instead")
        return cls(opening=ids[0], to_answer=ids[1], to_user=ids[2], end=ids[1][0])


def _render(tokenizer: ChatTokenizer) -> str:
    turns = [("user", _USER), ("assistant", _ANSWER), ("user", _NEXT)]
    conversation = [{"role": role, "content": content} for role, content in turns]
    try:
        rendered = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=False)
    except (ValueError, AttributeError) as missing:
        raise InputError(f"the target's tokenizer has no usable chat template: {missing}") from None
    return str(rendered)
