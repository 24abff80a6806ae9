"""From a request's fields to sampling options."""

from __future__ import annotations

from typing import Any

from dspark.core import InputError, SamplingParams
from dspark.serving.errors import ApiError, bad_request
from dspark.serving.schema import ChatRequest, CompletionRequest, Sampling

_SAME = (
    "n", "min_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens",
    "max_draft_tokens",
)  # fmt: skip
_SEEDS = 2**63
_COMPLETION_TOKENS = 16
"""OpenAI's default length of a plain completion."""


def chat_params(body: ChatRequest) -> SamplingParams:
    """Options of a chat request.

    Raises:
        ApiError: 400, naming the field.
    """
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    return _params(body, max_tokens=limit, logprobs=(body.top_logprobs or 0) if body.logprobs else None)


def completion_params(body: CompletionRequest) -> SamplingParams:
    """Options of a plain completion request.

    Raises:
        ApiError: 400, naming the field.
    """
    if body.suffix:
        raise bad_request("suffix is not supported", "suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise bad_request("best_of is not supported; use n", "best_of")
    if body.echo and body.logprobs is not None:
        raise bad_request("echo gives no logprobs of the prompt; leave one of the two out", "echo")
    limit = _COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    return _params(body, max_tokens=limit, logprobs=body.logprobs)


def _params(body: Sampling, **more: Any) -> SamplingParams:
    chosen = {name: getattr(body, name) for name in _SAME if getattr(body, name) is not None}
    if body.seed is not None:
        chosen["seed"] = body.seed % _SEEDS
    if body.logit_bias:
        chosen["logit_bias"] = {_token(key): bias for key, bias in body.logit_bias.items()}
    try:
        return SamplingParams(**chosen, **more)
    except InputError as error:
        raise about_input(error, body) from None


def about_input(error: InputError, body: Sampling) -> ApiError:
    """A 400 that names the field the message starts with."""
    field = str(error).split(" ", 1)[0].split("[", 1)[0]
    return bad_request(str(error), field if field in type(body).model_fields else None)


def _token(key: str) -> int:
    if not key.isascii() or not key.isdigit() or len(key) > 10:
        raise bad_request(f"logit_bias must map token ids to numbers, got the key {key!r:.40}", "logit_bias")
    return int(key)
