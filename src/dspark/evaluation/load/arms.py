"""The arms of a load test: plain decoding, and every drafter with every policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dspark.core import InputError
from dspark.engine.costs import AUTO_COSTS, find_costs
from dspark.engine.profiling import Tell, tell_nobody
from dspark.evaluation.arms import PLAIN, Arm, Progress, check_names, counting, named_arm, no_progress, plain_arm
from dspark.evaluation.eval_arms import DrafterSpec
from dspark.evaluation.load.drive import Server
from dspark.evaluation.load.figures import ORACLE, ArmFacts
from dspark.evaluation.load.ongoing import OngoingPolicy
from dspark.evaluation.load.oracle import OraclePolicy, OracleServer, Outcomes
from dspark.evaluation.load.outcomes import record_outcomes, record_texts
from dspark.evaluation.load.plan import Point
from dspark.evaluation.load.traffic import Ids
from dspark.scheduling import PLANNED_POLICIES, LiveCosts, StepCosts, StepPolicy, make_step_policy, policy_name
from dspark.target import LoadedTarget

POLICIES = ("threshold:0.5", "sync", "async", ORACLE)
"""Policies beside the fixed lengths."""

_RANDOM, _WITH_RANDOM = "random", ("async",)
"""Drafters with random weights, and the policies they run with: the one that promises never to lose."""

_RECORDED_AT_A_TIME = 16


@dataclass(frozen=True, kw_only=True)
class LoadArm:
    """An arm and what it is."""

    facts: ArmFacts
    arm: Arm


def check_policies(policies: Sequence[str]) -> tuple[str, ...]:
    """See before a target is loaded whether there are policies of these names.

    Raises:
        InputError: about the first one that there is not, or that is a fixed length.
    """
    for policy in policies:
        if policy != ORACLE and policy_name(policy).startswith("fixed"):
            raise InputError(f"fixed lengths are given with --lengths, got policy {policy!r}")
    return tuple(policies)


def load_arms(
    loaded: LoadedTarget, specs: Sequence[DrafterSpec], lengths: Sequence[int] | None, policies: Sequence[str]
) -> tuple[LoadArm, ...]:
    """Plain decoding, then the arms of each drafter.

    Args:
        loaded: the target.
        specs: drafters as users name them; one with random weights runs with ``async`` only.
        lengths: fixed verify lengths; None for all of them, a block's own is always among them.
        policies: others, as users write them, or ``oracle``; those that need confidences are left out for drafters
            that have none.

    Raises:
        InputError: a drafter does not fit the target or drafts nothing, or two arms have one name.
    """
    arms = [LoadArm(facts=_facts(PLAIN, "", PLAIN, 0, 0), arm=plain_arm(loaded))]
    for spec in specs:
        arms.extend(_drafter_arms(loaded, spec, lengths, policies))
    check_names([entry.facts.name for entry in arms])
    return tuple(arms)


def _drafter_arms(
    loaded: LoadedTarget, spec: DrafterSpec, lengths: Sequence[int] | None, policies: Sequence[str]
) -> Iterator[LoadArm]:
    arm = named_arm(loaded, spec.drafter)
    block, name = arm.drafter.block_size, spec.name or arm.name
    if not block:
        raise InputError(f"drafter {spec.drafter!r} drafts nothing for {loaded.name}; give a checkpoint directory")
    random = spec.drafter.partition(":")[0] == _RANDOM
    chosen = [] if random else [k for k in range(1, block + 1) if lengths is None or k in lengths or k == block]
    for length in chosen:
        policy = f"fixed:{length}"
        facts = _facts(f"{name} {policy}", name, policy, length, block)
        yield LoadArm(facts=facts, arm=replace(arm, name=facts.name, policy=policy))
    for policy in policies:
        if (random and policy not in _WITH_RANDOM) or (_reads(policy) and not arm.drafter.has_confidence):
            continue
        facts = _facts(f"{name} {policy}", name, policy, None, block)
        yield LoadArm(facts=facts, arm=replace(arm, name=facts.name, policy="fixed" if policy == ORACLE else policy))


def _facts(name: str, drafter: str, policy: str, length: int | None, block_size: int) -> ArmFacts:
    return ArmFacts(name=name, drafter=drafter, policy=policy, length=length, block_size=block_size)


def _reads(policy: str) -> bool:
    """Whether a policy can do nothing without confidences."""
    return policy == "sync" or policy.startswith("threshold")


class EngineContestant:
    """An arm that runs on the engine.

    Args:
        entry: the arm.
        make_policy: its policy for so many slots; None leaves it to the engine. Policies that learn go on from segment
            to segment of one load, as in a server that has served this load for a while.
    """

    def __init__(self, entry: LoadArm, make_policy: Callable[[int], StepPolicy] | None = None) -> None:
        self._entry, self._make_policy = entry, make_policy
        self._policies: dict[Point, OngoingPolicy] = {}

    @property
    def name(self) -> str:
        """What reports call it."""
        return self._entry.facts.name

    def open(self, point: Point, prompts: Sequence[Ids], max_tokens: int) -> Server:
        """A fresh engine."""
        if self._make_policy is None:
            return self._entry.arm.open(prompts, max_tokens=max_tokens, concurrency=point.users).engine
        if point not in self._policies:
            self._policies[point] = OngoingPolicy(self._make_policy(point.users))
        ongoing = self._policies[point]
        ongoing.next_engine()
        knows = isinstance(ongoing.policy, OraclePolicy)  # where the answers stand, so it cannot plan ahead
        arm = replace(
            self._entry.arm, policy=ongoing, online_calibration=not knows, plan_ahead=False if knows else None
        )
        engine = arm.open(prompts, max_tokens=max_tokens, concurrency=point.users).engine
        return OracleServer(engine, ongoing.policy) if isinstance(ongoing.policy, OraclePolicy) else engine


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known before a load test.

    Attributes:
        texts: by prompt, the whole greedy text of plain decoding.
        outcomes: by drafter that has an oracle, what is accepted where.
        costs: by drafter that plans with costs or has an oracle, what steps cost.
        notes: where these come from.
    """

    texts: Mapping[Ids, Ids]
    outcomes: Mapping[str, Outcomes]
    costs: Mapping[str, StepCosts]
    notes: tuple[str, ...]


def num_recorded(arms: Sequence[LoadArm], prompts: Collection[Ids]) -> int:
    """Answers that :func:`record` lets the target write."""
    return len(prompts) * (1 + sum(entry.facts.policy == ORACLE for entry in arms))


def record(
    arms: Sequence[LoadArm],
    prompts: Sequence[Ids],
    max_tokens: int,
    *,
    progress: Progress = no_progress,
    tell: Tell = tell_nobody,
) -> Known:
    """Let plain decoding and the drafters of the oracles answer every prompt once, and profile what is not yet.

    Args:
        arms: from :func:`load_arms`.
        prompts: different ones.
        max_tokens: length limit of the answers.
        progress: called after every answer.
        tell: told how far measuring a profile has come.
    """
    finished, width = counting(progress), min(len(prompts), _RECORDED_AT_A_TIME)
    texts = record_texts(arms[0].arm, prompts, max_tokens, width, on_answer=finished("texts"))
    outcomes = {
        entry.facts.drafter: record_outcomes(
            entry.arm, prompts, max_tokens, width, on_answer=finished(entry.facts.drafter)
        )
        for entry in arms
        if entry.facts.policy == ORACLE
    }
    found = {
        entry.facts.drafter: find_costs(AUTO_COSTS, entry.arm.loaded, entry.arm.drafter, tell=tell)
        for entry in {entry.facts.drafter: entry for entry in arms if _plans(entry.facts.policy)}.values()
    }
    return Known(
        texts=texts,
        outcomes=outcomes,
        costs={name: entry.costs for name, entry in found.items()},
        notes=tuple(f"{name}: {note}" for name, entry in found.items() for note in entry.notes),
    )


def contestants(arms: Sequence[LoadArm], known: Known) -> tuple[EngineContestant, ...]:
    """The arms, ready to run."""
    return tuple(_contestant(entry, known) for entry in arms)


def _contestant(entry: LoadArm, known: Known) -> EngineContestant:
    facts = entry.facts
    if not _plans(facts.policy):
        return EngineContestant(entry)
    costs = known.costs[facts.drafter]
    if facts.policy == ORACLE:
        return EngineContestant(entry, lambda slots: OraclePolicy(known.outcomes[facts.drafter], _fresh(costs)))
    return EngineContestant(
        entry,
        lambda slots: make_step_policy(facts.policy, _fresh(costs), block_size=facts.block_size, num_slots=slots),
    )


def _fresh(costs: StepCosts) -> StepCosts:
    """The same costs, as they were profiled."""
    return LiveCosts(costs.model) if isinstance(costs, LiveCosts) else costs


def _plans(policy: str) -> bool:
    """Whether a policy plans with costs."""
    return policy == ORACLE or policy in PLANNED_POLICIES
