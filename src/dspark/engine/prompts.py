"""Prompts as users give them: texts, token ids, conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from dspark.core import InputError, SamplingParams
from dspark.data.rendering import Messages, render, tokenise

Message = Mapping[str, Any]
"""One turn of a conversation: ``{"role": "user", "content": "..."}``."""


@dataclass(frozen=True)
class Prompt:
    """A prompt ready for the engine: its text if there is one, and its token ids."""

    text: str | None
    ids: tuple[int, ...]


def read_prompts(prompts: object, tokenizer: PreTrainedTokenizerBase) -> list[Prompt]:
    """One text, a list of texts, one list of token ids, or a list of such lists.

    Raises:
        InputError: it is none of these, or a text is empty.
    """
    if isinstance(prompts, str) or _is_ids(prompts):
        prompts = [prompts]
    if not isinstance(prompts, Sequence):
        raise InputError(f"prompts must be a text, token ids, or a list of these, got {type(prompts).__name__}")
    return [_read_prompt(prompt, tokenizer) for prompt in prompts]


def read_conversations(messages: object, tokenizer: PreTrainedTokenizerBase) -> list[Prompt]:
    """One conversation (a list of messages) or a list of conversations, through the model's chat template.

    Raises:
        InputError: the model has no chat template, or a message is malformed.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InputError(f"messages must be a non-empty list of {{'role', 'content'}} messages, got {messages!r:.80}")
    conversations = [messages] if isinstance(messages[0], Mapping) else messages
    return [_render(conversation, tokenizer) for conversation in conversations]


def is_conversation(prompt: object) -> bool:
    """Whether a prompt is a list of messages."""
    return (
        isinstance(prompt, Sequence) and not isinstance(prompt, str) and bool(prompt) and isinstance(prompt[0], Mapping)
    )


def read_params(params: object, count: int) -> list[SamplingParams]:
    """Options for ``count`` prompts: none (the defaults), one for all, or a list of as many.

    Raises:
        InputError: wrong type or length.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, Sequence) or not all(isinstance(entry, SamplingParams) for entry in params):
        raise InputError(f"params must be SamplingParams or a list of them, got {params!r:.80}")
    if len(params) != count:
        raise InputError(f"there are {count} prompts but {len(params)} sampling params; give one, or one per prompt")
    return list(params)


def _is_ids(prompt: object) -> bool:
    return isinstance(prompt, Sequence) and bool(prompt) and not isinstance(prompt[0], (str, Sequence))


def _read_prompt(prompt: object, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    if isinstance(prompt, str):
        if not prompt:
            raise InputError("the prompt is empty; give at least one token")
        return Prompt(_unicode(prompt, "the prompt"), tuple(tokenizer.encode(prompt)))
    if isinstance(prompt, Sequence):
        return Prompt(None, tuple(prompt))
    raise InputError(f"a prompt must be a text or a list of token ids, got {type(prompt).__name__}")


def _render(conversation: object, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    messages = _checked(conversation)
    if not tokenizer.chat_template:
        raise InputError("this model has no chat template; use generate() with a ready prompt")
    text = render(tokenizer, messages, answer_next=True, thinking=None)
    return Prompt(text, tuple(tokenise(tokenizer, text)))


def _unicode(text: str, what: str) -> str:
    """The text, if it is one: bytes that were no UTF-8 hide in Python strings as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise InputError(f"{what} is no Unicode text: character {error.start} is {found!r}; give it in UTF-8") from None
    return text


def _checked(conversation: object) -> Messages:
    """The messages of a conversation, if that is what it is."""
    if not isinstance(conversation, Sequence) or isinstance(conversation, str) or not conversation:
        raise InputError(f"a conversation must be a non-empty list of messages, got {conversation!r:.80}")
    for message in conversation:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f"a message must be a {{'role': ..., 'content': ...}} mapping, got {message!r:.80}")
        if not isinstance(message.get("content"), str):
            raise InputError(f"the content of a message must be a text, got {message.get('content')!r:.80}")
        _unicode(message["role"], "the role of a message")
        _unicode(message["content"], "the content of a message")
    return conversation
