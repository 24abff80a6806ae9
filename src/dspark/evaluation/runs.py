"""One timed run: some prompts through one engine, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dspark.core import SamplingParams
from dspark.engine import LLM, CompletionOutput, CompletionStats, StepStats
from dspark.engine.prompts import read_params
from dspark.target import LoadedTarget

Ids = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run wrote and what it cost.

    Attributes:
        token_ids: generated ids of every prompt.
        seconds: from handing in the prompts to the last token, prefill included.
        steps: rows and times of every engine step; empty for runs outside the engine.
        rounds: target steps that continued an answer, over all answers.
        round_tokens: tokens these rounds committed.
        stats: cost and acceptance of every answer; empty for runs outside the engine.
    """

    token_ids: tuple[tuple[int, ...], ...]
    seconds: float
    steps: tuple[StepStats, ...] = ()
    rounds: int = 0
    round_tokens: int = 0
    stats: tuple[CompletionStats, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(map(len, self.token_ids))


def greedy(max_tokens: int) -> SamplingParams:
    """Options of every measured request: greedy, ending by itself or at ``max_tokens``."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens)


def end_token_ids(loaded: LoadedTarget) -> frozenset[int]:
    """Ids that end a text: the model's, and the tokenizer's, which chat models add to them."""
    own = loaded.tokenizer.eos_token_id
    return loaded.target.facts.eos_token_ids | (frozenset() if own is None else frozenset((own,)))


def nobody() -> None:
    """Tell nobody."""


def run_prompts(
    llm: LLM,
    prompts: Sequence[Ids],
    params: SamplingParams | Sequence[SamplingParams],
    *,
    on_answer: Callable[[], None] = nobody,
) -> Run:
    """Answer all prompts, as many at a time as the engine takes; the requests are gone afterwards, come what may.

    Args:
        llm: the engine.
        prompts: their token ids.
        params: options for all, or one per prompt.
        on_answer: called whenever an answer has ended.

    Raises:
        InputError: a prompt the target cannot take.
    """
    engine, options = llm.engine, read_params(params, len(prompts))
    names: list[str] = []
    ended: dict[str, CompletionOutput] = {}
    steps: list[StepStats] = []
    start = time.perf_counter()
    try:
        names.extend(engine.add_request(prompt, option) for prompt, option in zip(prompts, options, strict=True))
        while len(ended) < len(names):
            for output in engine.step():
                if output.completion is not None:
                    ended[output.request_id] = output.completion
                    on_answer()
            steps.append(engine.last_step)
        seconds = time.perf_counter() - start
    finally:
        for name in names:
            engine.abort(name)
    answers = [ended[name] for name in names]
    return Run(
        token_ids=tuple(answer.token_ids for answer in answers),
        seconds=seconds,
        steps=tuple(steps),
        rounds=sum(answer.stats.rounds for answer in answers),
        round_tokens=sum(answer.stats.committed for answer in answers),
        stats=tuple(answer.stats for answer in answers),
    )
