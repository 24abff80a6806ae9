"""Made-up costs, and a world that drafts, verifies and times steps as a policy asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dspark.scheduling import CostModel, ProfileIdentity, Reveal, StepOutcome, StepPolicy, StepView, TimeTable

IDENTITY = ProfileIdentity(machine="made up", model="tiny", dtype="float32", threads=1, backend="cpu")


def model(seconds: Sequence[float], draft: Sequence[float] | None = None) -> CostModel:
    """A profile of steps with 1, 2, .. rows, and of drafting for 1, 2, .. requests."""
    return CostModel(
        identity=IDENTITY,
        verify=TimeTable(widths=tuple(range(1, len(seconds) + 1)), depths=(0,), seconds=(tuple(seconds),)),
        draft=None
        if draft is None
        else TimeTable(widths=tuple(range(1, len(draft) + 1)), depths=(0,), seconds=(tuple(draft),)),
    )


def view(step: int, limits: Sequence[int], *, generations: Sequence[int] | None = None, prefill: int = 0) -> StepView:
    """Requests in slots 0, 1, .."""
    slots = np.arange(len(limits))
    owners = slots if generations is None else np.array(generations)
    return StepView(
        step=step, slots=slots, generations=owners, limits=np.array(limits, np.int64), num_prefill_rows=prefill
    )


def run_step(
    policy: StepPolicy, seen: StepView, confidence: np.ndarray | None, would_accept: np.ndarray
) -> tuple[np.ndarray, StepOutcome]:
    """Begin, admit and close one step; returns the drafted lengths and the outcome, which is not reported."""
    drafted = policy.begin_step(seen)
    reveal = Reveal(drafted, confidence)
    policy.admit(reveal)
    lengths = reveal.lengths
    outcome = StepOutcome(
        step=seen.step,
        slots=seen.slots,
        generations=seen.generations,
        proposed=drafted,
        verified=lengths,
        accepted=np.minimum(would_accept, lengths),
        stated=reveal.close(),
        rows=seen.base_rows + int(lengths.sum()),
    )
    return drafted, outcome


@dataclass
class World:
    """R requests for ever, costs as in a profile.

    Attributes:
        costs: true ones.
        requests, block: sizes.
        accept: conditional acceptance of every slot, [R, G], as it is at a step.
        state: what the confidence head says, given the truth; None has none.
        seed: of everything drawn.
    """

    costs: CostModel
    requests: int
    block: int
    accept: Callable[[int], np.ndarray]
    state: Callable[[np.ndarray, np.random.Generator], np.ndarray] | None = None
    seed: int = 0
    drafted: list[int] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def run(self, policy: StepPolicy, steps: int, lifetime: int | None = None) -> World:
        """Let a policy serve; every ``lifetime`` steps all requests are new ones."""
        rng = np.random.default_rng(self.seed)
        for step in range(steps):
            generation = 0 if lifetime is None else step // lifetime
            owners = [generation * self.requests + r for r in range(self.requests)]
            truth = self.accept(step)
            hits = rng.random((self.requests, self.block)) < truth
            would_accept = np.logical_and.accumulate(hits, axis=1).sum(axis=1)
            confidence = None if self.state is None else self.state(truth, rng)
            seen = view(step, [self.block] * self.requests, generations=owners)
            drafted, outcome = run_step(policy, seen, confidence, would_accept)
            policy.outcome(outcome)
            number = int((drafted > 0).sum())
            draft = self.costs.draft_curve(self.requests, self.block)[number]
            self.drafted.append(int(drafted.sum()))
            self.verified.append(int(outcome.verified.sum()))
            self.tokens.append(self.requests + int(outcome.accepted.sum()))
            self.seconds.append(float(draft + self.costs.verify_curve(outcome.rows, 0.0)[outcome.rows]))
        return self

    def rate(self, start: int = 0, stop: int | None = None) -> float:
        """Tokens per second over some steps."""
        return sum(self.tokens[start:stop]) / sum(self.seconds[start:stop])
