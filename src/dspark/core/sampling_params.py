"""What one request asks of the sampler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real

from dspark.core.errors import InputError

MAX_LOGPROBS = 64
"""Upper bound of :attr:`SamplingParams.logprobs` (entries per token)."""
MAX_ANSWERS = 1024
"""Upper bound of :attr:`SamplingParams.n`."""
_MOST_TOP_K = 2**31 - 1
_REPETITION = 1e6
"""A repetition penalty may multiply a logit by this at most, so that no logit overflows."""


def _number(name: str, value: object, low: float, high: float, *, low_open: bool = False) -> float:
    """Return ``value`` as a float inside [low, high] (or (low, high]), or raise InputError."""
    expected = f"a number {'>' if low_open else '>='} {low:g}" + ("" if math.isinf(high) else f" and <= {high:g}")
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be {expected}, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every float
        number = math.inf
    inside = math.isfinite(number) and (low < number if low_open else low <= number) and number <= high
    if not inside:
        raise InputError(f"{name} must be {expected}, got {value!r}")
    return number


def _integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int in [low, high], or raise InputError; numpy's integers are as good as Python's."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if number >= low and (high is None or number <= high):
            return number
    bound = "" if high is None else f" and <= {high}"
    raise InputError(f"{name} must be an integer >= {low}{bound}, got {value!r}")


def _listed(name: str, value: object, what: str) -> Iterable:
    """Return ``value`` if it can be walked through, or raise InputError."""
    if not isinstance(value, Iterable):
        raise InputError(f"{name} must be a list of {what}, got {value!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling options of one request, checked on construction.

    The names and meanings are those vLLM and OpenAI users know. The order in which they act on a target row is: logit
    bias, penalties, ``min_tokens`` (stop ids masked), temperature, ``top_k``, ``top_p``, ``min_p``.

    Attributes:
        n: number of independent answers, at most 1024.
        temperature: 0 means greedy decoding.
        top_k: keep the k most likely tokens; 0 or -1 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches this, in (0, 1].
        min_p: drop tokens less likely than this share of the most likely one, in [0, 1].
        repetition_penalty: > 1 divides positive and multiplies negative logits of tokens of prompt and output, in
            [1e-6, 1e6].
        presence_penalty: subtracted once from logits of tokens of the output, in [-2, 2].
        frequency_penalty: subtracted per occurrence in the output, in [-2, 2].
        logit_bias: token id -> number added to its logit, each in [-100, 100].
        min_tokens: no stop token, end-of-text token or stop string ends the answer before this many tokens.
        max_tokens: length limit of the answer; None means up to the context length.
        stop: strings that end the answer.
        stop_token_ids: token ids that end the answer, besides the model's own end-of-text ids.
        ignore_eos: the model's own end-of-text ids do not end the answer.
        seed: same seed, same sample, alone or in a batch, but for rounding and for policies that read confidences
            (those can change a sample, never its distribution); None draws one.
        logprobs: None for none, else how many of the most likely alternatives to give beside the chosen token.
        include_stop_str_in_output: keep the stop string in the text.
        skip_special_tokens: leave special tokens out of the text.
        max_draft_tokens: most tokens drafted at a time; 0 decodes plainly, None leaves it to drafter and policy. What
            the target would write is the same with any.

    Raises:
        InputError: a value is outside its range.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0
    max_tokens: int | None = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    max_draft_tokens: int | None = None

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 - frozen dataclass
        put("n", _integer("n", self.n, 1, MAX_ANSWERS))
        put("temperature", _number("temperature", self.temperature, 0.0, math.inf))
        put("top_k", 0 if self.top_k == -1 else _integer("top_k", self.top_k, 0, _MOST_TOP_K))
        put("top_p", _number("top_p", self.top_p, 0.0, 1.0, low_open=True))
        put("min_p", _number("min_p", self.min_p, 0.0, 1.0))
        put("repetition_penalty", _number("repetition_penalty", self.repetition_penalty, 1 / _REPETITION, _REPETITION))
        for name in ("presence_penalty", "frequency_penalty"):
            put(name, _number(name, getattr(self, name), -2.0, 2.0))
        put("logit_bias", self._checked_bias())
        put("min_tokens", _integer("min_tokens", self.min_tokens, 0))
        if self.max_tokens is not None:
            put("max_tokens", _integer("max_tokens", self.max_tokens, 1))
            if self.min_tokens > self.max_tokens:
                raise InputError(f"min_tokens must be <= max_tokens ({self.max_tokens}), got {self.min_tokens}")
        put("stop", self._checked_stop())
        ids = _listed("stop_token_ids", self.stop_token_ids, "token ids")
        put("stop_token_ids", tuple(_integer("stop_token_ids", token, 0) for token in ids))
        if self.seed is not None:
            put("seed", _integer("seed", self.seed, 0))
        if self.max_draft_tokens is not None:
            put("max_draft_tokens", _integer("max_draft_tokens", self.max_draft_tokens, 0))
        if self.logprobs is not None:
            put("logprobs", _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS))

    def _checked_bias(self) -> dict[int, float]:
        if not isinstance(self.logit_bias, Mapping):
            raise InputError(f"logit_bias must map token ids to numbers, got {self.logit_bias!r}")
        return {
            _integer("logit_bias keys", token, 0): _number(f"logit_bias[{token}]", bias, -100.0, 100.0)
            for token, bias in dict(self.logit_bias).items()
        }

    def _checked_stop(self) -> tuple[str, ...]:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(_listed("stop", self.stop, "strings"))
        for text in stop:
            if not isinstance(text, str) or not text:
                raise InputError(f"stop must hold non-empty strings, got {text!r}")
        return stop

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy (temperature 0)."""
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        """Whether any penalty that depends on earlier tokens is active."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
