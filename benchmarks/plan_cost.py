"""Milliseconds for planning one step of 256 requests with blocks of 16, on one core.

Run: python benchmarks/plan_cost.py [steps]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from dspark.scheduling import (
    ChooserOptions,
    CostModel,
    EarlyStop,
    LiveCosts,
    PastCapacity,
    ProfileIdentity,
    Reveal,
    StepOutcome,
    StepPolicy,
    StepView,
    TimeTable,
)

REQUESTS, BLOCK = 256, 16


def costs() -> LiveCosts:
    """A jagged curve with some forty measured widths, and drafting at two block lengths."""
    widths = tuple(sorted({*range(1, 33), *range(40, 257, 8), 512, 1024, 2048, 4096, 4352}))
    seconds = tuple(0.02 + 2e-5 * width + 0.002 * (width // 64) for width in widths)
    numbers = (1, 8, 64, 256)
    draft = tuple(tuple(0.003 + 1e-6 * block * n for n in numbers) for block in (8, 16))
    return LiveCosts(
        CostModel(
            identity=ProfileIdentity(machine="made up", model="", dtype="", threads=1, backend=""),
            verify=TimeTable(widths=widths, depths=(0, 1024), seconds=(seconds, tuple(1.3 * s for s in seconds))),
            draft=TimeTable(widths=numbers, depths=(8, 16), seconds=draft),
        )
    )


def blocks(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Confidences and what will be accepted of whole blocks, drawn before the clock runs."""
    rng, drawn = np.random.default_rng(0), []
    for _ in range(count):
        confidence = rng.beta(8, 2, (REQUESTS, BLOCK))
        hits = rng.random((REQUESTS, BLOCK)) < confidence
        drawn.append((confidence, np.logical_and.accumulate(hits, axis=1).sum(axis=1)))
    return drawn


def step(policy: StepPolicy, number: int, confidence: np.ndarray, would_accept: np.ndarray) -> dict[str, float]:
    """One step; seconds of processor time of its parts."""
    slots = np.arange(REQUESTS)
    limits = np.full(REQUESTS, BLOCK)
    start = time.thread_time()
    view = StepView(step=number, slots=slots, generations=slots, limits=limits, context=300.0)
    wanted = policy.begin_step(view)
    begun = time.thread_time()
    reveal = Reveal(wanted, confidence)
    policy.admit(reveal)
    admitted = time.thread_time()
    lengths = reveal.lengths
    rows = REQUESTS + int(lengths.sum())
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
            verify_seconds=0.02 + 2e-5 * rows + 0.002 * (rows // 64),
            draft_seconds=0.003 + 1e-6 * 16 * REQUESTS,
        )
    )
    return {"begin_step": begun - start, "admit": admitted - begun, "rows": float(rows)}


def main() -> None:
    """Print medians."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    drawn = blocks(32)
    for kind in (EarlyStop, PastCapacity):
        policy = kind(costs(), block_size=BLOCK, num_slots=REQUESTS, options=ChooserOptions())
        parts = [step(policy, number, *drawn[number % len(drawn)]) for number in range(steps)][20:]
        begin, admit = (1e3 * float(np.median([part[name] for part in parts])) for name in ("begin_step", "admit"))
        rows = np.mean([part["rows"] for part in parts])
        print(
            f"{policy.name}: {begin + admit:.3f} ms a step (begin_step {begin:.3f}, admit {admit:.3f}) for {REQUESTS} "
            f"requests of {BLOCK}; {rows:.0f} rows verified"
        )


if __name__ == "__main__":
    main()
