"""The simulated engine against the real one, over the tiny pair: whatever does not depend on time is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dspark.drafters import Drafter
from dspark.engine import LLM
from dspark.evaluation import make_arm
from dspark.evaluation.runs import greedy, run_prompts
from dspark.scheduling import CostModel, LiveCosts, make_step_policy
from dspark.simulation import (
    Cluster,
    OpenLoop,
    RecordedText,
    RecordedTexts,
    ReplicaOptions,
    ValidationPlan,
    record,
    simulate,
    validate,
)
from dspark.target import LoadedTarget, load_target

from ..evaluation.tiny_pair import save_tiny_drafter, save_tiny_target
from .worlds import RISING

PROMPTS = [tuple(range(5, 5 + length)) for length in (3, 40, 9, 2, 25, 60, 4, 11)]
TOKENS, WIDTH, ROWS = 40, 3, 24
COSTS = RISING.cost_model("made up")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    folder = save_tiny_target(tmp_path_factory.mktemp("tiny") / "tiny-target")
    return load_target(str(folder), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def drafter(loaded: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> Drafter:
    """Random weights with a confidence head; hardly anything it drafts is accepted."""
    return make_arm(loaded, str(save_tiny_drafter(tmp_path_factory.mktemp("tiny") / "tiny-drafter"))).drafter


@pytest.fixture(scope="module")
def answers(loaded: LoadedTarget, drafter: Drafter) -> tuple[RecordedText, ...]:
    return record(loaded, drafter, PROMPTS, TOKENS)


@pytest.fixture(scope="module")
def lookup(loaded: LoadedTarget) -> Drafter:
    """Drafts what stood there before, which is often right in the loops that random targets write."""
    return make_arm(loaded, "ngram").drafter


@pytest.fixture(scope="module")
def looked_up(loaded: LoadedTarget, lookup: Drafter) -> tuple[RecordedText, ...]:
    found = record(loaded, lookup, PROMPTS, TOKENS)
    accepted = np.concatenate([text.accepted for text in found])
    proposed = np.concatenate([text.proposed for text in found])
    assert 0.1 < accepted.sum() / proposed.sum() < 0.9, "these texts say little about acceptance"
    assert len(set(proposed.tolist())) > 2, "these blocks are all of one length"
    return found


def run_engine(loaded: LoadedTarget, drafter: Drafter, policy: str, costs: CostModel):
    """Rows, prompt rows and verified drafts of every step."""
    made = make_step_policy(policy, LiveCosts(costs, enabled=False), block_size=drafter.block_size, num_slots=WIDTH)
    llm = LLM(
        loaded,
        drafter=drafter,
        policy=made,
        online_calibration=False,
        max_requests=WIDTH,
        max_batch_rows=ROWS,
        kv_tokens=8 * 256,
        prefix_cache=False,
    )
    steps = run_prompts(llm, PROMPTS, greedy(TOKENS)).steps
    return [(step.rows, step.prefill_rows, sum(step.verify_lens), step.committed) for step in steps]


def check_steps(
    loaded: LoadedTarget, drafter: Drafter, answers: tuple[RecordedText, ...], policy: str, costs: CostModel
) -> None:
    """The simulated engine takes the steps of the real one."""
    options = ReplicaOptions(max_requests=WIDTH, max_batch_rows=ROWS)
    history = simulate(
        Cluster(costs=costs, options=options),
        RecordedTexts(answers, drafter.block_size),
        OpenLoop(times=np.zeros(len(answers))),
        policy,
    )
    columns = (history.rows, history.prefill, history.verified, history.committed + history.started)
    found = list(zip(*(column.tolist() for column in columns), strict=True))
    assert found == run_engine(loaded, drafter, policy, costs)


@pytest.mark.parametrize("policy", ["fixed:2", "threshold:0.5", "sync", "async"])
def test_the_same_steps_row_for_row(
    loaded: LoadedTarget, drafter: Drafter, answers: tuple[RecordedText, ...], policy: str
) -> None:
    check_steps(loaded, drafter, answers, policy, COSTS)


@pytest.mark.parametrize("policy", ["fixed:0", "fixed:2", "fixed", "async"])
def test_the_same_steps_where_drafts_are_accepted(
    loaded: LoadedTarget, lookup: Drafter, looked_up: tuple[RecordedText, ...], policy: str
) -> None:
    check_steps(loaded, lookup, looked_up, policy, COSTS)


def test_a_comparison(loaded: LoadedTarget, drafter: Drafter, answers: tuple[RecordedText, ...]) -> None:
    plan = ValidationPlan(policies=("fixed:0", "fixed"), concurrency=(2,), max_tokens=TOKENS, repeats=1)
    rows = list(validate(loaded, drafter, PROMPTS, answers, COSTS, plan))
    assert [row.policy for row in rows] == ["fixed:0", "fixed"]
    for row in rows:
        assert row.steps == row.simulated_steps
        assert row.verify_len == pytest.approx(row.simulated_verify_len)
        assert row.tokens == sum(text.answer for text in answers)
        # The same steps of the same rows and contexts: what is off is what steps take, and nothing else.
        assert row.error_without_drift == pytest.approx(0.0, abs=1e-9)


def test_recordings_know_the_end_of_an_answer(answers: tuple[RecordedText, ...], tmp_path: Path) -> None:
    for text in answers:
        assert len(text.accepted) == text.answer - 1
        places = np.arange(1, text.answer)
        assert (text.accepted <= text.answer - places).all()
