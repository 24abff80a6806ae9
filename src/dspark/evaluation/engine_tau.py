"""What the engine makes of a drafter on some prompts, for comparison with what training foretold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark.core import SamplingParams
from dspark.evaluation.acceptance import AcceptanceCounts, count_rounds, flat
from dspark.evaluation.arms import Arm
from dspark.evaluation.bootstrap import Estimate, resamples, tau_of
from dspark.evaluation.runs import Ids, run_prompts


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One answer, and where the engine drafted on its way through it.

    Attributes:
        token_ids: prompt and answer.
        num_prompt: length of the prompt.
        anchors: positions of the anchors of all rounds; a drafter that is asked at the same places meets the same
            texts.
        committed: tokens each of these rounds committed.
    """

    token_ids: tuple[int, ...]
    num_prompt: int
    anchors: tuple[int, ...]
    committed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class EngineTau:
    """Tokens per round, and what they were counted on.

    Attributes:
        tau: over all rounds, with an interval over prompts. Rounds at the end of an answer are cut, which a simulation
            knows nothing of; ``counts.tau_full_blocks`` is free of that.
        counts: drafts by position.
        walks: one per prompt.
    """

    tau: Estimate
    counts: AcceptanceCounts
    walks: tuple[Walk, ...]


def engine_tau(
    arm: Arm,
    prompts: Sequence[Ids],
    *,
    temperature: float = 0.0,
    max_tokens: int = 128,
    concurrency: int = 8,
    seed: int = 0,
) -> EngineTau:
    """Let the engine answer prompts with a drafter, and count.

    Args:
        arm: the drafter over its target, from :func:`dspark.evaluation.make_arm`.
        prompts: token ids.
        temperature: 0 is greedy.
        max_tokens: length limit of every answer.
        concurrency: answers in progress at a time.
        seed: prompt i is sampled with seed + i.

    Raises:
        InputError: a prompt the target cannot take, or an option out of range.
    """
    params = [
        SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed + number)
        for number in range(len(prompts))
    ]
    run = run_prompts(
        arm.open(prompts, max_tokens=max_tokens, concurrency=concurrency, record_rounds=True), prompts, params
    )
    rounds = [stats.traces for stats in run.stats]
    committed = [tuple(len(trace.committed) for trace in answer) for answer in rounds]
    walks = tuple(
        Walk(
            token_ids=(*prompt, *answer),
            num_prompt=len(prompt),
            anchors=tuple(trace.anchor_position for trace in traces),
            committed=tokens,
        )
        for prompt, answer, traces, tokens in zip(prompts, run.token_ids, rounds, committed, strict=True)
    )
    draws = resamples(len(prompts), 2000, seed)
    tau = tau_of([sum(tokens) for tokens in committed], [len(tokens) for tokens in committed], draws)
    return EngineTau(tau=tau.estimate(), counts=count_rounds(flat(rounds), arm.drafter.block_size), walks=walks)
