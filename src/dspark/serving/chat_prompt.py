"""From messages to a prompt, the chat template's way."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from dspark.serving.errors import bad_request
from dspark.serving.schema import ChatMessage, ChatRequest, ContentPart, Tool, ToolCall

_THINK = "<think>"


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation: its ids, and whether it ends inside a thought."""

    ids: tuple[int, ...]
    thinking: bool


def thinks(template: str) -> bool:
    """Whether a template's source knows of thoughts."""
    return _THINK in template


def template_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """The chat template's source; empty without one."""
    template = tokenizer.chat_template
    if isinstance(template, Mapping):
        return "\n".join(str(part) for part in template.values())
    return str(template or "")


def template_options(body: ChatRequest) -> dict[str, Any]:
    """Variables for the template; thinking can be switched in three ways, the most direct wins."""
    options: dict[str, Any] = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        options.setdefault("reasoning_effort", body.reasoning_effort)
        options.setdefault("enable_thinking", body.reasoning_effort != "none")
    if body.enable_thinking is not None:
        options["enable_thinking"] = body.enable_thinking
    return options


def render_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    options: Mapping[str, Any],
    *,
    answer_next: bool = True,
) -> ChatPrompt:
    """Render and tokenise a conversation.

    Args:
        tokenizer: the model's.
        messages: the turns.
        tools: what the model may call.
        options: further variables for the template.
        answer_next: end where the assistant has to go on.

    Raises:
        ApiError: 400, if the model has no template, or it refuses the messages.
    """
    template = template_of(tokenizer)
    if not template:
        raise bad_request("this model has no chat template; use /v1/completions with a ready prompt", "messages")
    if tools and "tools" not in template:
        raise bad_request("this model's chat template knows no tools", "tools")
    reserved = set(inspect.signature(tokenizer.apply_chat_template).parameters) & set(options)
    if reserved:
        raise bad_request(f"{min(reserved)!r} is no variable of the chat template", "chat_template_kwargs")
    turns = [_turn(message) for message in messages]
    given: list[Any] | None = [tool.model_dump(exclude_none=True) for tool in tools] or None
    try:
        text = tokenizer.apply_chat_template(
            turns, tools=given, tokenize=False, add_generation_prompt=answer_next, **options
        )
    except Exception as error:  # templates raise whatever they like about what they are given
        raise bad_request(f"the model's chat template refuses this: {error}", "messages") from None
    rendered = str(text)
    ids = tuple(tokenizer.encode(rendered, add_special_tokens=False))
    return ChatPrompt(ids, answer_next and rendered.rstrip().endswith(_THINK))


def _turn(message: ChatMessage) -> dict[str, Any]:
    """A message as templates expect it."""
    turn: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
    turn["content"] = _text(message.content)
    for name in ("name", "reasoning_content", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            turn[name] = value
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    return turn


def _text(content: str | list[ContentPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type != "text" or part.text is None:
            raise bad_request(f"this model reads text only, got a part of type {part.type!r:.40}", "messages")
    return "".join([part.text or "" for part in content])


def _call(call: ToolCall) -> dict[str, Any]:
    """A call with its arguments as an object, which is what templates write out."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        raise bad_request("the arguments of a tool call in the messages are no JSON", "messages") from None
    return {
        "id": call.id or "",
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }
