"""What planning a step costs the host: the policies alone, on made-up numbers, without a model."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dspark.evaluation.tables import markdown_table
from dspark.scheduling import (
    PLANNED_POLICIES,
    CostModel,
    LiveCosts,
    ProfileIdentity,
    Reveal,
    StepOutcome,
    StepPolicy,
    StepView,
    TimeTable,
    make_step_policy,
)

_WARM = 20
"""Steps that are not counted."""

_STEP, _ROW, _CLIFF, _CLIFF_ROWS = 0.02, 2e-5, 0.002, 64


@dataclass(frozen=True, kw_only=True)
class PlanCost:
    """Processor time of planning one step, medians.

    Attributes:
        policy: its name.
        requests, block: how many decode, and drafts of each.
        begin_seconds: deciding who drafts, which can be done while the step before runs.
        admit_seconds: choosing among the drafts, between drafting and verifying.
        rows: verified rows of a step, in the mean.
    """

    policy: str
    requests: int
    block: int
    begin_seconds: float
    admit_seconds: float
    rows: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.begin_seconds + self.admit_seconds


def plan_costs(requests: int, block: int, steps: int) -> tuple[PlanCost, ...]:
    """Time the policies that plan with costs, one thread.

    Args:
        requests: that decode in every step.
        block: drafts of each.
        steps: that are counted.
    """
    drawn = _blocks(32, requests, block)
    found = []
    for name in PLANNED_POLICIES:
        policy = make_step_policy(name, _costs(requests, block), block_size=block, num_slots=requests)
        parts = np.array([_step(policy, number, *drawn[number % len(drawn)]) for number in range(_WARM + steps)])[
            _WARM:
        ]
        begin, admit, _ = np.median(parts, axis=0).tolist()
        found.append(
            PlanCost(
                policy=name,
                requests=requests,
                block=block,
                begin_seconds=begin,
                admit_seconds=admit,
                rows=float(parts[:, 2].mean()),
            )
        )
    return tuple(found)


def plan_cost_markdown(costs: tuple[PlanCost, ...]) -> str:
    """A table."""
    head = ["policy", "requests", "block", "ms a step", "begin_step", "admit", "rows"]
    rows = [
        [
            cost.policy,
            str(cost.requests),
            str(cost.block),
            f"{1e3 * cost.seconds:.3f}",
            f"{1e3 * cost.begin_seconds:.3f}",
            f"{1e3 * cost.admit_seconds:.3f}",
            f"{cost.rows:.0f}",
        ]
        for cost in costs
    ]
    return markdown_table(head, rows) + "\n"


def _costs(requests: int, block: int) -> LiveCosts:
    """A jagged curve with some forty measured widths, and drafting at two block lengths."""
    most = requests * (1 + block)
    widths = tuple(
        sorted({*range(1, 33), *range(40, 257, 8), *(most * part // 8 for part in range(1, 9) if most > 256)})
    )
    seconds = tuple(_seconds(width) for width in widths)
    numbers = tuple(sorted({1, max(requests // 8, 1), requests}))
    blocks = tuple(sorted({max(block // 2, 1), block}))
    draft = tuple(tuple(0.003 + 1e-6 * length * n for n in numbers) for length in blocks)
    return LiveCosts(
        CostModel(
            identity=ProfileIdentity(machine="made up", model="", dtype="", threads=1, backend=""),
            verify=TimeTable(widths=widths, depths=(0, 1024), seconds=(seconds, tuple(1.3 * s for s in seconds))),
            draft=TimeTable(widths=numbers, depths=blocks, seconds=draft),
        )
    )


def _seconds(rows: int) -> float:
    return _STEP + _ROW * rows + _CLIFF * (rows // _CLIFF_ROWS)


def _blocks(count: int, requests: int, block: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Confidences and what will be accepted of whole blocks, drawn before the clock runs."""
    rng, drawn = np.random.default_rng(0), []
    for _ in range(count):
        confidence = rng.beta(8, 2, (requests, block))
        hits = rng.random((requests, block)) < confidence
        drawn.append((confidence, np.logical_and.accumulate(hits, axis=1).sum(axis=1)))
    return drawn


def _step(policy: StepPolicy, number: int, confidence: np.ndarray, would_accept: np.ndarray) -> tuple[float, ...]:
    """One step: processor seconds of its two parts, and rows."""
    requests, block = confidence.shape
    slots = np.arange(requests)
    start = time.thread_time()
    view = StepView(step=number, slots=slots, generations=slots, limits=np.full(requests, block), context=300.0)
    wanted = policy.begin_step(view)
    begun = time.thread_time()
    reveal = Reveal(wanted, confidence)
    policy.admit(reveal)
    admitted = time.thread_time()
    lengths = reveal.lengths
    rows = requests + int(lengths.sum())
    policy.outcome(
        StepOutcome(
            step=number,
            slots=slots,
            generations=slots,
            proposed=wanted,
            verified=lengths,
            accepted=np.minimum(would_accept, lengths),
            stated=reveal.close(),
            rows=rows,
            context=300.0,
            verify_seconds=_seconds(rows),
            draft_seconds=0.003 + 1e-6 * block * requests,
        )
    )
    return begun - start, admitted - begun, float(rows)
