"""Drafters answer the same prompts in turn, and every round is recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from dspark.core import InputError, SamplingParams
from dspark.evaluation.arms import Arm, Progress, counting, no_progress, rotated
from dspark.evaluation.decode import warm_up
from dspark.evaluation.prompts import PromptSet
from dspark.evaluation.runs import Ids, Run, run_prompts
from dspark.target import LoadedTarget

_WAVES = 4
"""An arm's turn is this many prompts for each that is answered at a time, so that few are answered in small batches."""


@dataclass(frozen=True, kw_only=True)
class EvalPlan:
    """What is measured.

    Attributes:
        max_tokens: length limit of every answer.
        temperatures: at each of them everything is answered once; 0 is greedy.
        concurrency: answers in progress at a time.
        seed: prompt i is sampled with seed + i, by every arm.
        resamples: how often prompts are resampled for the intervals.

    Raises:
        InputError: a number is out of range.
    """

    max_tokens: int = 256
    temperatures: tuple[float, ...] = (0.0, 1.0)
    concurrency: int = 8
    seed: int = 0
    resamples: int = 2000

    def __post_init__(self) -> None:
        for name in ("max_tokens", "concurrency", "resamples"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise InputError(f"seed must be >= 0, got {self.seed}")
        if not self.temperatures or len(set(self.temperatures)) < len(self.temperatures):
            raise InputError(f"temperatures must be different numbers, at least one, got {list(self.temperatures)}")
        for temperature in self.temperatures:
            SamplingParams(temperature=temperature)

    def params(self, temperature: float, prompt: int) -> SamplingParams:
        """Options of the request for a prompt."""
        return SamplingParams(temperature=temperature, max_tokens=self.max_tokens, seed=self.seed + prompt)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Some prompts of one set, answered by one arm at one temperature.

    Attributes:
        arm, domain, temperature: what was measured.
        first: number of the first prompt in its set; the others follow it.
        run: answers and costs, with the traces of all rounds.
    """

    arm: str
    domain: str
    temperature: float
    first: int
    run: Run


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Prompts of a set that all arms answer before the next group comes."""

    domain: str
    first: int
    prompts: tuple[Ids, ...]


def measure(
    arms: Sequence[Arm],
    sets: Sequence[PromptSet],
    plan: EvalPlan,
    loaded: LoadedTarget,
    *,
    progress: Progress = no_progress,
) -> Iterator[tuple[Turn, ...]]:
    """Run the plan.

    Groups of prompts of the sets take turns; all arms answer a group at one temperature before anything else happens,
    and take turns in going first.

    Args:
        arms: at least one, with different names.
        sets: prompts by domain, with different names.
        plan: sizes.
        loaded: the target all arms share.
        progress: called after every answer.

    Yields:
        The turns of all arms on one group at one temperature, as soon as they are complete.

    Raises:
        InputError: a prompt the target cannot take.
    """
    ids = {entry.domain: entry.token_ids(loaded.tokenizer) for entry in sets}
    _check_lengths(ids, loaded)
    warm_up(arms, next(iter(ids.values()))[:1])
    answered = counting(progress)
    for number, (group, temperature) in enumerate(_order(ids, plan)):
        turns = []
        for arm in rotated(arms, number):
            note = f"{group.domain} T={temperature:g} {arm.name}"
            params = [plan.params(temperature, group.first + place) for place in range(len(group.prompts))]
            llm = arm.open(group.prompts, max_tokens=plan.max_tokens, concurrency=plan.concurrency, record_rounds=True)
            run = run_prompts(llm, group.prompts, params, on_answer=answered(note))
            turns.append(Turn(arm=arm.name, domain=group.domain, temperature=temperature, first=group.first, run=run))
        yield tuple(turns)


def count_answers(arms: Sequence[object], sets: Sequence[PromptSet], plan: EvalPlan) -> int:
    """How many answers a plan asks for."""
    return len(arms) * len(plan.temperatures) * sum(len(entry.prompts) for entry in sets)


def _check_lengths(ids: dict[str, list[tuple[int, ...]]], loaded: LoadedTarget) -> None:
    """Raise InputError about the first prompt that leaves no room for an answer."""
    room = loaded.target.facts.max_positions
    for domain, prompts in ids.items():
        for number, prompt in enumerate(prompts, start=1):
            if len(prompt) >= room:
                raise InputError(
                    f"prompt {number} of {domain!r} has {len(prompt)} tokens; {loaded.name} has {room} positions for "
                    "prompt and answer, so leave it out"
                )


def _order(ids: dict[str, list[tuple[int, ...]]], plan: EvalPlan) -> Iterator[tuple[_Group, float]]:
    """All groups at all temperatures, the sets taking turns."""
    width = _WAVES * plan.concurrency
    by_set = [
        [
            _Group(domain=domain, first=first, prompts=tuple(prompts[first : first + width]))
            for first in range(0, len(prompts), width)
        ]
        for domain, prompts in ids.items()
    ]
    for groups in zip_longest(*by_set):
        for group in groups:
            if group is not None:
                for temperature in plan.temperatures:
                    yield group, temperature
