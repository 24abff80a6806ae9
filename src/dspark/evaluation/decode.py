"""Decoding speed: several ways of decoding take turns on the same prompts, so that drift of the machine cancels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from dspark.core import InputError
from dspark.evaluation.arms import Arm, Progress, check_names, no_progress, rotated
from dspark.evaluation.prompts import PromptSet
from dspark.evaluation.runs import Ids, Run, greedy, run_prompts
from dspark.evaluation.transformers_arm import TransformersArm
from dspark.target import LoadedTarget

AnyArm = Arm | TransformersArm

_WARM_UP_TOKENS = 12


@dataclass(frozen=True, kw_only=True)
class DecodePlan:
    """What is measured.

    Attributes:
        max_tokens: length limit of every answer.
        repeats: how often everything is run; figures are medians over the repeats.
        concurrency: numbers of answers in progress at a time.
    """

    max_tokens: int = 128
    repeats: int = 3
    concurrency: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name, values in (
            ("max_tokens", (self.max_tokens,)),
            ("repeats", (self.repeats,)),
            ("concurrency", self.concurrency),
        ):
            if not values or any(value < 1 for value in values):
                raise InputError(f"{name} must be >= 1, got {', '.join(map(str, values)) or 'nothing'}")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One turn of one arm.

    Attributes:
        arm: name of the arm.
        domain: which prompts.
        concurrency: how many of them at a time.
        repeat: 0-based.
        group: which group of the domain's prompts.
        run: the result.
    """

    arm: str
    domain: str
    concurrency: int
    repeat: int
    group: int
    run: Run


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """Prompts of one turn, and where in the plan it is."""

    domain: str
    concurrency: int
    repeat: int
    group: int
    prompts: tuple[Ids, ...]


def measure_decoding(
    arms: Sequence[AnyArm],
    sets: Sequence[PromptSet],
    plan: DecodePlan,
    loaded: LoadedTarget,
    *,
    progress: Progress = no_progress,
) -> list[Measurement]:
    """Run the plan.

    The prompts of a domain are cut into groups of as many as run at a time; a group that would be smaller is filled
    up from the front. All arms answer a group before the next one comes, and take turns in going first.

    Args:
        arms: at least one, with different names.
        sets: prompts by domain.
        plan: sizes.
        loaded: the target all arms share.
        progress: called after every turn.

    Raises:
        InputError: arms of the same name, or a prompt the target cannot take.
    """
    check_names([arm.name for arm in arms])
    ids = {entry.domain: entry.token_ids(loaded.tokenizer) for entry in sets}
    warm_up(arms, next(iter(ids.values()))[:1])
    measured: list[Measurement] = []
    for number, turn in enumerate(_turns(ids, plan)):
        for arm in rotated(arms, number):
            run = run_arm(arm, turn.prompts, plan.max_tokens, turn.concurrency)
            measured.append(
                Measurement(
                    arm=arm.name,
                    domain=turn.domain,
                    concurrency=turn.concurrency,
                    repeat=turn.repeat,
                    group=turn.group,
                    run=run,
                )
            )
            progress(len(measured), f"{turn.domain} x{turn.concurrency} {arm.name}")
    return measured


def count_turns(arms: Sequence[AnyArm], sets: Sequence[PromptSet], plan: DecodePlan) -> int:
    """How many measurements a plan makes."""
    groups = sum(-(-len(entry.prompts) // width) for entry in sets for width in plan.concurrency)
    return groups * plan.repeats * len(arms)


def run_arm(arm: AnyArm, prompts: Sequence[Ids], max_tokens: int, concurrency: int) -> Run:
    """One turn of one arm, greedy."""
    if isinstance(arm, TransformersArm):
        return arm.run(prompts, max_tokens)
    return run_prompts(arm.open(prompts, max_tokens=max_tokens, concurrency=concurrency), prompts, greedy(max_tokens))


def warm_up(arms: Sequence[AnyArm], prompts: Sequence[Ids]) -> None:
    """Let every arm write a few tokens, unmeasured."""
    for arm in arms:
        run_arm(arm, prompts, _WARM_UP_TOKENS, 1)


def _turns(ids: dict[str, list[tuple[int, ...]]], plan: DecodePlan) -> Iterator[_Turn]:
    for repeat in range(plan.repeats):
        for width in plan.concurrency:
            for domain, prompts in ids.items():
                for group, start in enumerate(range(0, len(prompts), width)):
                    chosen = tuple(islice(cycle(prompts), start, start + width))
                    yield _Turn(domain=domain, concurrency=width, repeat=repeat, group=group, prompts=chosen)
