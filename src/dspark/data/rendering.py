"""The one place where messages become text: what is generated from, learnt from and masked is rendered here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dspark.core import InputError

Messages = Sequence[Mapping[str, str]]


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is needed here."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any:
        """Render a conversation."""
        ...

    def encode(self, text: str, **options: Any) -> list[int]:
        """Tokenise."""
        ...


def render(tokenizer: ChatTokenizer, messages: Messages, *, answer_next: bool, thinking: bool | None = False) -> str:
    """The text of a conversation; with ``answer_next`` it ends where the assistant has to go on.

    Args:
        tokenizer: has the chat template.
        messages: role and content of each turn.
        answer_next: add the header of an answer.
        thinking: for templates that can be asked to think or not (``enable_thinking``); others do not look at it. None
            leaves it to the template.

    Raises:
        InputError: no chat template, or one that refuses these messages.
    """
    options = {} if thinking is None else {"enable_thinking": thinking}
    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=answer_next, **options
        )
    except Exception as refused:  # templates raise whatever they like about the roles they are given
        if not getattr(tokenizer, "chat_template", None):
            raise InputError(f"the target's tokenizer has no usable chat template: {refused}") from None
        raise InputError(f"the target's chat template refuses these messages: {refused}") from None
    return str(text)


def tokenise(tokenizer: ChatTokenizer, rendered: str) -> list[int]:
    """Token ids of rendered text; markers in it count as markers, exactly as when the text is served."""
    return tokenizer.encode(rendered, add_special_tokens=False)


def with_system(system: str, messages: Messages) -> list[dict[str, str]]:
    """Messages behind a system prompt; none is added for the empty text, which leaves it to the template."""
    first = [{"role": "system", "content": system}] if system else []
    return [*first, *(dict(message) for message in messages)]


def check_end(tokenizer: ChatTokenizer, token: int, whose: str) -> None:
    """See that a turn ends with a marker, not with text that could occur anywhere.

    Raises:
        InputError: it does not.
    """
    markers = getattr(tokenizer, "added_tokens_decoder", None)
    if markers is not None and token not in markers:
        raise InputError(f"the chat template ends {whose} with ordinary text, not with a special token")
