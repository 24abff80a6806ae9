"""``dspark bench plan``: what planning a step costs the host."""

from __future__ import annotations

from typing import Annotated

import typer

from dspark.cli.screen import print_markdown, waiting


def bench_plan(
    requests: Annotated[int, typer.Option(help="Answers that decode at a time.", min=1)] = 256,
    block: Annotated[int, typer.Option(help="Drafts of each.", min=1)] = 16,
    steps: Annotated[int, typer.Option(help="Steps that are timed.", min=1)] = 200,
) -> None:
    """Processor time of planning one step with the policies async and sync; needs no model."""
    with waiting("Starting ..."):
        from dspark import evaluation as ev
    with waiting("Planning ..."):
        costs = ev.plan_costs(requests, block, steps)
    print_markdown(ev.plan_cost_markdown(costs))
