"""What is known before a load test: the texts, and how many drafts are accepted after every token of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dspark.engine import RoundTrace
from dspark.evaluation.arms import Arm
from dspark.evaluation.load.traffic import Ids
from dspark.evaluation.runs import greedy, nobody, run_prompts
from dspark.scheduling import Reveal, StepOutcome, StepView
from dspark.scheduling.step_view import Ints


class LookOnly:
    """Drafts whole blocks and verifies nothing of them, so that a draft is seen after every token."""

    name = "look only"
    needs_confidence = False

    def begin_step(self, view: StepView) -> Ints:
        """Whole blocks."""
        return view.limits

    def admit(self, reveal: Reveal) -> None:
        """Nothing."""

    def outcome(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""


def record_texts(
    arm: Arm, prompts: Sequence[Ids], max_tokens: int, concurrency: int, *, on_answer: Callable[[], None] = nobody
) -> dict[Ids, Ids]:
    """Greedy answers of an arm, by prompt."""
    llm = arm.open(prompts, max_tokens=max_tokens, concurrency=concurrency)
    run = run_prompts(llm, prompts, greedy(max_tokens), on_answer=on_answer)
    return dict(zip(prompts, run.token_ids, strict=True))


def record_outcomes(
    arm: Arm, prompts: Sequence[Ids], max_tokens: int, concurrency: int, *, on_answer: Callable[[], None] = nobody
) -> dict[Ids, tuple[int, ...]]:
    """By prompt, how many drafts are accepted after each token of its greedy answer.

    Args:
        arm: whose drafter; its policy plays no part.
        prompts: different ones.
        max_tokens: length limit of the answers.
        concurrency: answers in progress at a time.
        on_answer: called whenever an answer has ended.
    """
    looking = replace(arm, policy=LookOnly())
    llm = looking.open(prompts, max_tokens=max_tokens, concurrency=concurrency, record_rounds=True)
    run = run_prompts(llm, prompts, greedy(max_tokens), on_answer=on_answer)
    return {
        prompt: accepted_after(text, len(prompt), stats.traces)
        for prompt, text, stats in zip(prompts, run.token_ids, run.stats, strict=True)
    }


def accepted_after(text: Ids, num_prompt: int, traces: Sequence[RoundTrace]) -> tuple[int, ...]:
    """Leading drafts that agree with what follows in a text, after each of its tokens; 0 where nothing was drafted.

    Args:
        text: the answer.
        num_prompt: tokens before it.
        traces: rounds that drafted, in any order.
    """
    found = [0] * len(text)
    for trace in traces:
        place = trace.anchor_position - num_prompt
        agree = [got == due for got, due in zip(trace.drafted, text[place + 1 :], strict=False)]
        found[place] = agree.index(False) if False in agree else len(agree)
    return tuple(found)
