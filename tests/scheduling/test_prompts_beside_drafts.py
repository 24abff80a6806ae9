"""Prefill in the same step is no reason to draft."""

from __future__ import annotations

import pytest

from dspark.scheduling import EarlyStop, PastCapacity

from .test_step_policies import BLOCK, SLOTS, served
from .worlds import model, view


@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
def test_prompts_beside_them_do_not_make_drafts_pay(kind: type) -> None:
    """A row costs the same wherever the curve is straight, so the time of prefill rows must not spread over drafts."""
    costs = model([0.02 + 0.02 * rows for rows in range(128)], [0.004] * 8)
    wanted = []
    for prefill in (0, 60):
        policy = served(kind(costs, block_size=BLOCK, num_slots=SLOTS))
        wanted.append(policy.begin_step(view(6, [BLOCK] * 3, prefill=prefill)).tolist())
    assert wanted[0] == wanted[1]
