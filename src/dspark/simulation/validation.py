"""Is the simulator right? The same answers from the real engine and from the simulated one, with profiled costs.

Greedily recorded answers make everything but time exact: a policy whose decisions do not depend on time takes the same
steps, row for row. What is left is how well a profile foretells what steps take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dspark.core import InputError
from dspark.drafters import Drafter
from dspark.engine import LLM
from dspark.engine.costs import profile_identity
from dspark.engine.profile_plan import ProfilePlan
from dspark.engine.profiling import measure_costs
from dspark.evaluation.arms import Progress, counting, no_progress, rotated
from dspark.evaluation.load.outcomes import LookOnly
from dspark.evaluation.runs import Ids, Run, greedy, run_prompts
from dspark.scheduling import CostModel, LiveCosts, Reveal, StepOutcome, StepPolicy, StepView, make_step_policy
from dspark.scheduling.step_view import Ints
from dspark.simulation.arrivals import OpenLoop
from dspark.simulation.cluster import Cluster, simulate
from dspark.simulation.history import History
from dspark.simulation.recorded_texts import RecordedText, RecordedTexts
from dspark.simulation.recording import record_answers
from dspark.simulation.replica import ReplicaOptions
from dspark.target import LoadedTarget

_ROWS, _RECORDED_AT_A_TIME = 512, 16


@dataclass(frozen=True, kw_only=True)
class ValidationPlan:
    """What is compared.

    Attributes:
        policies: as users write them; the oracle cannot run in a real engine.
        concurrency: answers in progress at a time, one comparison each.
        max_tokens: length limit of the answers.
        repeats: real runs of each; the middle one counts.

    Raises:
        InputError: a number is out of range, or a policy is the oracle.
    """

    policies: tuple[str, ...] = ("fixed:0", "fixed:2", "fixed", "async")
    concurrency: tuple[int, ...] = (1, 8, 32)
    max_tokens: int = 64
    repeats: int = 3

    def __post_init__(self) -> None:
        if min((*self.concurrency, self.repeats), default=0) < 1 or self.max_tokens < 2:
            raise InputError("concurrency and repeats must be at least 1, max_tokens at least 2")
        if "oracle" in self.policies:
            raise InputError("the oracle cannot run in a real engine; leave it out")


class Watched:
    """A policy whose finished steps are kept.

    Args:
        policy: the policy.
    """

    def __init__(self, policy: StepPolicy) -> None:
        self._policy = policy
        self.steps: list[StepOutcome] = []

    @property
    def name(self) -> str:
        """That of the policy."""
        return self._policy.name

    @property
    def needs_confidence(self) -> bool:
        """As the policy does."""
        return self._policy.needs_confidence

    def begin_step(self, view: StepView) -> Ints:
        """As the policy does."""
        return self._policy.begin_step(view)

    def admit(self, reveal: Reveal) -> None:
        """As the policy does."""
        self._policy.admit(reveal)

    def outcome(self, outcome: StepOutcome) -> None:
        """Keep it, and tell the policy."""
        self.steps.append(outcome)
        self._policy.outcome(outcome)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One policy at one concurrency, real and simulated.

    Attributes:
        concurrency, policy: which.
        tokens: that were written.
        seconds: of the real run, the middle one.
        simulated_seconds: as it was profiled.
        steps, simulated_steps: how many.
        verify_len, simulated_verify_len: verified drafts per round.
        cost_ratio: what the real steps took over what the profile says of these very steps.
    """

    concurrency: int
    policy: str
    tokens: int
    seconds: float
    simulated_seconds: float
    steps: int
    simulated_steps: int
    verify_len: float
    simulated_verify_len: float
    cost_ratio: float

    @property
    def error(self) -> float:
        """By how much simulated throughput is too high, as a share."""
        return self.seconds / self.simulated_seconds - 1

    @property
    def error_without_drift(self) -> float:
        """The same if the profile had been right on average about the steps that ran."""
        return self.seconds / (self.simulated_seconds * self.cost_ratio) - 1


def record(
    loaded: LoadedTarget,
    drafter: Drafter,
    prompts: Sequence[Ids],
    max_tokens: int,
    *,
    progress: Progress = no_progress,
) -> tuple[RecordedText, ...]:
    """Record the greedy answers that a comparison repeats; see :func:`~dspark.simulation.recording.record_answers`."""
    width = min(len(prompts), _RECORDED_AT_A_TIME)
    llm = _open(loaded, drafter, LookOnly(), prompts, max_tokens, width, record_rounds=True)
    return record_answers(llm, prompts, max_tokens, on_answer=counting(progress)("answers"))


def profile(loaded: LoadedTarget, drafter: Drafter, prompts: Sequence[Ids], plan: ValidationPlan) -> CostModel:
    """Measure what the steps of a comparison cost, as wide as they can be."""
    most = max(plan.concurrency)
    longest = sorted(map(len, prompts))[-most:]
    rows = min(max(most * (1 + drafter.block_size), sum(longest)), _rows(most, drafter.block_size))
    widths = ProfilePlan(max_rows=rows, max_requests=most)
    return measure_costs(loaded.target, drafter, profile_identity(loaded, drafter), widths)


def validate(
    loaded: LoadedTarget,
    drafter: Drafter,
    prompts: Sequence[Ids],
    answers: Sequence[RecordedText],
    costs: CostModel,
    plan: ValidationPlan,
    *,
    live: bool = True,
    progress: Progress = no_progress,
) -> Iterator[Compared]:
    """Run every policy for real, in turns, and simulated.

    Args:
        loaded: the target.
        drafter: the drafter.
        prompts: token ids; all are handed in at once and wait for a place.
        answers: from :func:`record`.
        costs: a profile of these two.
        plan: what is compared.
        live: let policies learn from what real steps take, as they do; False decides by the profile alone.
        progress: called after every run with how many are done and a note.
    """
    done = 0
    for width in plan.concurrency:
        runs: dict[str, list[tuple[Run, list[StepOutcome]]]] = {policy: [] for policy in plan.policies}
        for repeat in range(plan.repeats):
            for policy in rotated(plan.policies, repeat):
                believed = LiveCosts(costs, enabled=live)
                made = make_step_policy(policy, believed, block_size=drafter.block_size, num_slots=width)
                watched = Watched(made)
                llm = _open(loaded, drafter, watched, prompts, plan.max_tokens, width)
                run = run_prompts(llm, prompts, greedy(plan.max_tokens))
                runs[policy].append((run, watched.steps))
                done += 1
                progress(done, f"{policy} x{width}")
        for policy, found in runs.items():
            history = _simulate(drafter, answers, costs, policy, width)
            yield _compare(policy, width, found, history, costs)


def _open(
    loaded: LoadedTarget,
    drafter: Drafter,
    policy: StepPolicy,
    prompts: Sequence[Ids],
    max_tokens: int,
    width: int,
    *,
    record_rounds: bool = False,
) -> LLM:
    """A fresh engine with just enough memory, without what is not simulated."""
    block, page = 1 + drafter.block_size, loaded.target.page_size
    longest = min(loaded.target.facts.max_positions, max(map(len, prompts)) + max_tokens)
    return LLM(
        loaded,
        drafter=drafter,
        policy=policy,
        online_calibration=False,
        max_requests=width,
        max_batch_rows=_rows(width, drafter.block_size),
        kv_tokens=width * (longest + block + 2 * page),
        prefix_cache=False,
        record_rounds=record_rounds,
    )


def _rows(width: int, block_size: int) -> int:
    return max(_ROWS, width * (1 + block_size))


def _simulate(drafter: Drafter, answers: Sequence[RecordedText], costs: CostModel, policy: str, width: int) -> History:
    options = ReplicaOptions(max_requests=width, max_batch_rows=_rows(width, drafter.block_size))
    texts = RecordedTexts(answers, drafter.block_size)
    return simulate(Cluster(costs=costs, options=options), texts, OpenLoop(times=np.zeros(len(answers))), policy)


def _compare(
    policy: str, width: int, found: Sequence[tuple[Run, list[StepOutcome]]], history: History, costs: CostModel
) -> Compared:
    run, steps = sorted(found, key=lambda entry: entry[0].seconds)[len(found) // 2]
    rounds = sum(len(step.verify_lens) for step in run.steps)
    verified = sum(sum(step.verify_lens) for step in run.steps)
    simulated = int(history.decoding.sum())
    return Compared(
        concurrency=width,
        policy=policy,
        tokens=run.tokens,
        seconds=run.seconds,
        simulated_seconds=history.duration,
        steps=len(run.steps),
        simulated_steps=len(history.end),
        verify_len=verified / max(rounds, 1),
        simulated_verify_len=float(history.verified.sum()) / max(simulated, 1),
        cost_ratio=run.seconds / foretold(steps, costs),
    )


def foretold(steps: Sequence[StepOutcome], costs: CostModel) -> float:
    """Seconds that a profile says of steps that ran."""
    total = 0.0
    for step in steps:
        total += float(costs.verify.at(step.rows, step.context))
        if costs.draft is not None and step.num_drafting:
            total += float(costs.draft.at(step.num_drafting, step.block))
    return total
