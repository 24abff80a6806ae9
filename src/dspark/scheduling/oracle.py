"""The bound for benchmarks: lengths chosen by who knows the outcome. It is no policy, and no engine can run it."""

from __future__ import annotations

import numpy as np

from dspark.scheduling.cost_model import StepCosts
from dspark.scheduling.step_view import Ints, StepView


def oracle_lengths(accepted: Ints, view: StepView, costs: StepCosts) -> Ints:
    """Drafts and verify lengths that maximise tokens per second, knowing how many drafts would be accepted.

    It verifies no draft that is rejected, and drafts for no request whose drafts it does not verify. Requests with the
    most accepted drafts go first, so that few need to draft.

    Args:
        accepted: [R] drafts that would be accepted if all were verified.
        view: the step.
        costs: of steps.

    Returns:
        [R] lengths; all 0 is plain decoding.
    """
    useful = np.minimum(accepted, view.limits)
    order = np.argsort(-useful, kind="stable")
    counts = np.arange(int(useful.sum()) + 1)
    ends = np.cumsum(useful[order])
    numbers = np.where(counts > 0, np.searchsorted(ends, counts) + 1, 0)  # requests that n drafts take
    verify = costs.verify_curve(view.base_rows + len(counts), view.context)[
        view.base_rows : view.base_rows + len(counts)
    ]
    draft = costs.draft_curve(view.num_requests, int(useful.max(initial=0)))[numbers]
    best = int(np.argmax((view.num_requests + counts) / (verify + draft)))
    lengths = np.zeros_like(useful)
    lengths[order] = np.clip(best - (ends - useful[order]), 0, useful[order])
    return lengths
