"""What an engine shows of its scheduler, and confidences that are corrected on the way."""

from __future__ import annotations

import numpy as np
import pytest

from dspark import LLM
from dspark.calibration import Calibration, OnlineCalibration
from dspark.core import SamplingParams
from dspark.engine import EngineCore, EngineOptions
from dspark.scheduling import ConfidenceThreshold, FixedLength, LiveCosts, PastCapacity, StepPolicy
from dspark.target import LoadedTarget

from .test_planning import PARAMS, PROMPTS, SLOTS, VOCAB, Watched, costs
from .tiny import byte_tokenizer, completions, tiny_drafter, tiny_target


def make(policy: StepPolicy, online: OnlineCalibration | None = None, **options: object) -> EngineCore:
    target = tiny_target(VOCAB)
    sizes = EngineOptions(num_pages=64, max_requests=SLOTS, max_batch_rows=64, seed=7, record_rounds=True)
    return EngineCore(target, tiny_drafter(target), policy, options=sizes, online=online, **options)


def test_a_fresh_engine() -> None:
    state = make(FixedLength(2)).scheduling()
    assert (state.policy, state.point, state.verify_drift, state.notice, state.calibration) == (
        "fixed:2", None, None, None, (),
    )  # fmt: skip


def test_the_last_step_and_the_drift() -> None:
    live = LiveCosts(costs(1e-6, step=1e-4, draft=1e-6))  # far faster than any machine, and drafts pay
    core = make(PastCapacity(live, block_size=5, num_slots=SLOTS), OnlineCalibration(5), costs=live)
    for prompt, params in zip(PROMPTS, PARAMS, strict=True):
        core.add_request(prompt, params)
    while core.has_unfinished():
        core.step()
        point = core.scheduling().point
        assert point is not None
        assert point.rows == core.last_step.rows
        assert point.drafted == tuple(round.drafted for round in core.last_step.rounds)
        assert point.verified == tuple(round.verified for round in core.last_step.rounds)
        assert point.requests == len(point.drafted)
        assert point.drafting == sum(drafts > 0 for drafts in point.drafted)
        assert point.predicted_seconds is not None
        assert 0 < point.measured_seconds <= core.last_step.seconds + 1e-9
    state = core.scheduling()
    assert state.verify_drift is not None
    assert state.verify_drift > 1.25
    assert state.notice is not None
    assert "slower" in state.notice
    assert sum(position.trials for position in state.calibration) > 0


def test_online_calibration_learns_what_the_rounds_say() -> None:
    """Its trials are the rounds' own, after the fitted calibration; what the policy sees is corrected."""
    online, fitted = OnlineCalibration(5), Calibration(temperatures=(2.0, 0.5, 1.5, 1.0, 3.0))
    core = make(FixedLength(), online, calibration=fitted)
    stats = [done.stats for done in completions(core, PROMPTS, PARAMS)]
    reached = np.sum([np.pad(s.reached_at, (0, 5 - len(s.reached_at))) for s in stats], axis=0)
    assert [position.trials for position in online.state()] == reached.tolist()
    accepted = sum(sum(s.accepted_at[:1]) for s in stats)
    assert online.state()[0].observed == pytest.approx(accepted / reached[0], abs=0.02)
    moved = [t for s in stats for t in s.traces if t.drafted]
    corrected = online.apply(fitted.apply_array(np.array([moved[-1].confidence])))
    assert np.abs(corrected - fitted.apply_array(np.array([moved[-1].confidence]))).max() > 0.01


def test_switched_off_nothing_is_corrected() -> None:
    core = make(FixedLength(), OnlineCalibration(5, enabled=False))
    stats = [done.stats for done in completions(core, PROMPTS, PARAMS)]
    assert all(trace.calibrated == () for s in stats for trace in s.traces)


def test_where_it_is_on() -> None:
    target = tiny_target(vocab=300)
    loaded = LoadedTarget(target=target, tokenizer=byte_tokenizer(), name="tiny", source="tests", notes=())
    drafter = tiny_drafter(target)
    known = LiveCosts(costs(0.001))

    def on(policy: str, wanted: bool | None = None, chosen: object = drafter) -> bool:
        llm = LLM(loaded, drafter=chosen, policy=policy, online_calibration=wanted, costs=known)
        return llm.engine.online is not None

    assert [on(policy) for policy in ("async", "sync", "fixed", "threshold:0.5")] == [True, True, False, False]
    assert not on("async", wanted=False)
    assert on("threshold:0.5", wanted=True)
    assert not on("async", chosen="ngram")


def test_one_engine_learns_nothing_from_a_request_without_confidence() -> None:
    watched = Watched(ConfidenceThreshold(0.0))
    core = make(watched, OnlineCalibration(5))
    completions(core, [[1, 2]], SamplingParams(max_tokens=2))
    assert sum(position.trials for position in core.scheduling().calibration) == 0
