"""Planning is cheap next to a step."""

from __future__ import annotations

import pytest

from dspark.evaluation import plan_cost_markdown, plan_costs


@pytest.mark.parametrize(("requests", "block"), [(1, 1), (3, 7), (256, 16)])
def test_every_planning_policy_is_timed(requests: int, block: int) -> None:
    found = plan_costs(requests, block, 30)
    assert [cost.policy for cost in found] == ["sync", "async"]
    for cost in found:
        assert cost.begin_seconds > 0
        assert cost.admit_seconds > 0
        assert requests <= cost.rows <= requests * (1 + block)
        assert cost.seconds < 3e-3, "bench plan says 1 ms for 256 requests of 16; this machine may be busy"
    table = plan_cost_markdown(found)
    assert "| async  |" in table
    assert f" {requests} |" in table
