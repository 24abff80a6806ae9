"""One timed run: some prompts through one engine, step by step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dspark.core import SamplingParams
from dspark.engine import LLM, CompletionOutput, StepStats

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
    """

    token_ids: tuple[tuple[int, ...], ...]
    seconds: float
    steps: tuple[StepStats, ...] = ()
    rounds: int = 0
    round_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(map(len, self.token_ids))


def greedy(max_tokens: int) -> SamplingParams:
    """Options of every measured request: greedy, ending by itself or at ``max_tokens``."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens)


def run_prompts(llm: LLM, prompts: Sequence[Ids], params: SamplingParams) -> Run:
    """Answer all prompts, as many at a time as the engine takes; the requests are gone afterwards, come what may."""
    engine = llm.engine
    names: list[str] = []
    ended: dict[str, CompletionOutput] = {}
    steps: list[StepStats] = []
    start = time.perf_counter()
    try:
        names.extend(engine.add_request(prompt, params) for prompt in prompts)
        while len(ended) < len(names):
            for output in engine.step():
                if output.completion is not None:
                    ended[output.request_id] = output.completion
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
    )
