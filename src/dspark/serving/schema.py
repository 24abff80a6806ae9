"""What clients send. Unknown fields are ignored, as OpenAI does; null means the default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Priority = Annotated[int, Field(ge=-100, le=100)]
Seconds = Annotated[FiniteFloat, Field(gt=0)]

_ORIGINS = (
    "Add pieces to choices, one per token with text: [text, origin, confidence]. Origin: 'draft' (drafted and "
    "accepted), 'correction' (the target's own, in place of a rejected draft), 'bonus' (the target's own, after drafts "
    "that were all accepted), 'plain' (nothing was drafted). Confidence: the drafter's in that place, 0 to 1, or null."
)
_DRAFTS = "Most tokens drafted at a time: 0 decodes plainly, with the same answer at temperature 0; null for no limit."


class Body(BaseModel):
    """Types are not converted: a number in quotes is an error."""

    model_config = ConfigDict(extra="ignore", strict=True)


class StreamOptions(Body):
    """How a stream is to be."""

    include_usage: bool | None = None


class ContentPart(Body):
    """A part of a message."""

    type: str
    text: str | None = None


class CalledFunction(Body):
    """A function the assistant called, arguments as JSON text."""

    name: str
    arguments: str = "{}"


class ToolCall(Body):
    """A call in an earlier turn."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    """One turn."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Function(Body):
    """A function the model may call."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool the model may call."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """Only a name."""

    name: str


class NamedTool(Body):
    """The tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    """The schema of a JSON answer."""

    name: str | None = None
    description: str | None = None
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Body):
    """The form of an answer; ``regex`` and ``grammar`` (Lark) go beyond OpenAI."""

    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    json_schema: JsonSchema | None = None
    regex: str | None = None
    grammar: str | None = None


class Sampling(Body):
    """What chat and plain completions have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: FiniteFloat | None = None
    top_p: FiniteFloat | None = None
    top_k: int | None = None
    min_p: FiniteFloat | None = None
    repetition_penalty: FiniteFloat | None = None
    presence_penalty: FiniteFloat | None = None
    frequency_penalty: FiniteFloat | None = None
    logit_bias: dict[str, FiniteFloat] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    seed: int | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None
    priority: Annotated[Priority | None, Field(description="Smaller goes first.")] = None
    timeout: Annotated[Seconds | None, Field(description="Seconds the request may take.")] = None
    return_token_ids: Annotated[bool | None, Field(description="Add token_ids to choices.")] = None
    return_origins: Annotated[bool | None, Field(description=_ORIGINS)] = None
    max_draft_tokens: Annotated[int | None, Field(description=_DRAFTS)] = None
    dspark_usage: Annotated[bool | None, Field(description="Add drafted and accepted counts to usage.")] = None


class ChatRequest(Sampling):
    """``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None


class CompletionRequest(Sampling):
    """``/v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class TokenizeRequest(Body):
    """``/tokenize``: a prompt, or messages as they would be sent to the model."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[Tool] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None


class DetokenizeRequest(Body):
    """``/detokenize``."""

    model: str | None = None
    tokens: list[int]
