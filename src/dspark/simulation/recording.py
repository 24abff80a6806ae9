"""Recording answers of a real engine, place by place, for simulations that repeat them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dspark.engine import LLM, CompletionStats
from dspark.evaluation.load.outcomes import accepted_after
from dspark.evaluation.runs import Ids, greedy, nobody, run_prompts
from dspark.simulation.recorded_texts import RecordedText


def record_answers(
    llm: LLM, prompts: Sequence[Ids], max_tokens: int, *, on_answer: Callable[[], None] = nobody
) -> tuple[RecordedText, ...]:
    """Greedy answers, with the block that the drafter proposes at every place of them.

    Args:
        llm: an engine that records rounds, with the policy :class:`~dspark.evaluation.load.outcomes.LookOnly`.
        prompts: token ids.
        max_tokens: length limit of the answers.
        on_answer: called whenever an answer has ended.
    """
    run = run_prompts(llm, prompts, greedy(max_tokens), on_answer=on_answer)
    block = llm.drafter.block_size
    return tuple(
        _recorded(prompt, text, stats, max_tokens, block, llm.drafter.has_confidence)
        for prompt, text, stats in zip(prompts, run.token_ids, run.stats, strict=True)
    )


def _recorded(
    prompt: Ids, text: tuple[int, ...], stats: CompletionStats, max_tokens: int, block: int, has_confidence: bool
) -> RecordedText:
    proposed = np.zeros(len(text) - 1, np.int64)
    confidence = np.zeros((len(text) - 1, block))
    for trace in stats.traces:
        place = trace.anchor_position - len(prompt)
        proposed[place] = len(trace.drafted)
        stated = trace.calibrated or trace.confidence
        confidence[place, : len(stated)] = stated
    return RecordedText(
        prompt=len(prompt),
        answer=len(text),
        max_tokens=max_tokens,
        by="place",
        proposed=proposed,
        accepted=np.array(accepted_after(text, len(prompt), stats.traces)[: len(text) - 1], np.int64),
        confidence=confidence if has_confidence else None,
    )
