"""The load generator: arrivals, orders, closed and open loops, on a made-up clock and engine."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from dspark.core import InputError
from dspark.engine import StepStats
from dspark.evaluation.load import (
    Job,
    LatencyTarget,
    LoadPlan,
    Output,
    RequestTrace,
    StepTrace,
    Stretch,
    Trace,
    Traffic,
    Window,
    arrival_times,
    check_texts,
    drive_closed,
    drive_open,
    sample_of,
    shape,
    staggered,
    traffics,
)
from dspark.scheduling import FixedLength

from .made_up_engine import MadeUpClock, MadeUpEngine, World, costs

PROMPTS = tuple((number,) * 3 for number in range(6))
WORLD = World.drawn(PROMPTS)
TRAFFIC = Traffic(name="all", domains=(PROMPTS,))


def engine(length: int = 2) -> MadeUpEngine:
    return MadeUpEngine(WORLD, FixedLength(length), costs(), MadeUpClock())


class TestArrivals:
    def test_a_steady_rate_is_a_poisson_process(self) -> None:
        """4000 gaps: mean and deviation of an exponential law, and counts whose variance is their mean."""
        times = np.array(arrival_times([Stretch(seconds=2000.0, start=2.0, end=2.0)], 7))
        gaps = np.diff(times)
        assert len(times) == pytest.approx(4000, rel=0.05)
        assert gaps.mean() == pytest.approx(0.5, rel=0.05)
        assert gaps.std() == pytest.approx(0.5, rel=0.06)
        counts = np.histogram(times, bins=200, range=(0, 2000))[0]
        assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.3)

    def test_a_ramp_follows_its_rate(self) -> None:
        """From 0 to 4 per second in 1000 s: a quarter of the arrivals comes in the first half."""
        times = np.array(arrival_times([Stretch(seconds=1000.0, start=0.0, end=4.0)], 3))
        assert len(times) == pytest.approx(2000, rel=0.08)
        assert (times < 500).mean() == pytest.approx(0.25, abs=0.03)
        assert (np.diff(times) > 0).all()

    @pytest.mark.parametrize(("start", "end"), [(2.0, 2.0), (0.0, 4.0), (4.0, 0.0), (1.0, 3.0)])
    def test_expected_counts_and_times_are_inverse(self, start: float, end: float) -> None:
        stretch = Stretch(seconds=10.0, start=start, end=end)
        assert stretch.expected == pytest.approx(20.0)
        assert stretch.when(0.0) == 0.0
        assert stretch.when(20.0) == pytest.approx(10.0)
        for share in (3.0, 10.0, 17.0):
            t = stretch.when(share)
            assert start * t + (end - start) * t * t / 20 == pytest.approx(share)

    @pytest.mark.parametrize(("name", "mean"), [("poisson", 0.7), ("ramp", 0.9), ("burst", 0.79)])
    def test_shapes(self, name: str, mean: float) -> None:
        parts = shape(name, 10.0, 20.0)
        assert sum(part.seconds for part in parts) == pytest.approx(20.0)
        assert sum(part.expected for part in parts) == pytest.approx(mean * 200)

    def test_a_burst_is_a_burst(self) -> None:
        times = np.array(arrival_times(shape("burst", 10.0, 100.0), 1))
        inside = ((times > 42.5) & (times < 57.5)).sum() / 15
        outside = ((times < 42.5) | (times > 57.5)).sum() / 85
        assert inside / outside == pytest.approx(7.5, rel=0.25)

    def test_seeds_decide(self) -> None:
        parts = shape("ramp", 3.0, 30.0)
        assert arrival_times(parts, 1, 2) == arrival_times(parts, 1, 2) != arrival_times(parts, 1, 3)

    def test_no_such_shape(self) -> None:
        with pytest.raises(InputError, match="poisson, ramp, burst, got 'wave'"):
            shape("wave", 1.0, 1.0)


class TestTraffic:
    def test_mixed_traffic_alternates_and_leaves_nothing_out(self) -> None:
        mixed, *alone = traffics([("a", PROMPTS[:2]), ("b", PROMPTS[2:])], each=True, mixed=True)
        assert (mixed.name, [entry.name for entry in alone]) == ("mixed", ["a", "b"])
        order = [job.prompt for job in islice(mixed.jobs(8, 0, 0), 16)]
        assert [prompt in PROMPTS[:2] for prompt in order] == [True, False] * 8
        assert set(order[1:8:2]) == set(order[9:16:2]) == set(PROMPTS[2:])
        assert order == [job.prompt for job in islice(mixed.jobs(8, 0, 0), 16)]
        assert order != [job.prompt for job in islice(mixed.jobs(8, 0, 1), 16)]

    def test_one_domain_is_not_mixed(self) -> None:
        (only,) = traffics([("a", PROMPTS)], each=False, mixed=True)
        assert only.name == "a"

    def test_first_answers_end_one_after_another(self) -> None:
        jobs = [job.max_tokens for job in islice(staggered(TRAFFIC.jobs(40, 0), 4), 7)]
        assert jobs == [10, 20, 30, 40, 40, 40, 40]
        assert [job.max_tokens for job in islice(staggered(TRAFFIC.jobs(8, 0), 8), 3)] == [4, 4, 4]


class TestClosedLoop:
    def test_there_are_always_as_many_users(self) -> None:
        served = engine()
        trace = drive_closed(served, TRAFFIC.jobs(12, 0), 3, Window(tokens=200), served.clock)
        assert served.most_seen == 3
        inside = [step for step in trace.steps if trace.start < step.at <= trace.end]
        assert all(step.stats.running == 3 or step.stats.verify_lens for step in inside)
        busy = [len(step.stats.verify_lens) + step.stats.prefill_rows // 3 for step in inside]
        assert set(busy) == {3}

    def test_the_window_leaves_the_filling_out_and_ends_in_time(self) -> None:
        served = engine()
        trace = drive_closed(served, TRAFFIC.jobs(12, 0), 3, Window(tokens=50), served.clock)
        first = [request.outputs[0].at for request in trace.requests[:3]]
        assert trace.start == max(first)
        sample = sample_of(trace, LatencyTarget())
        assert 50 <= sample.tokens <= 50 + 3 * 5
        assert sample.seconds == pytest.approx(trace.end - trace.start)
        assert sample.stay_seconds == pytest.approx(3 * sample.seconds)

    def test_a_window_of_time(self) -> None:
        served = engine()
        trace = drive_closed(served, TRAFFIC.jobs(12, 0), 2, Window(seconds=20.0), served.clock)
        assert 20.0 <= trace.end - trace.start < 23.0

    def test_nothing_is_left_behind(self) -> None:
        served = engine()
        drive_closed(served, TRAFFIC.jobs(12, 0), 3, Window(tokens=50), served.clock)
        assert not served.running
        assert not served.waiting

    def test_nothing_is_left_behind_by_ctrl_c(self) -> None:
        served = engine()
        served.fail_at = 7
        with pytest.raises(KeyboardInterrupt):
            drive_closed(served, TRAFFIC.jobs(12, 0), 3, Window(tokens=500), served.clock)
        assert not served.running

    def test_texts_are_compared_as_far_as_they_came(self) -> None:
        served = engine()
        trace = drive_closed(served, TRAFFIC.jobs(12, 0), 3, Window(tokens=50), served.clock)
        assert any(request.ended is None for request in trace.requests)
        assert check_texts(trace, WORLD.texts).partings == ()
        wrong = {prompt: (*text[:2], -1, *text[3:]) for prompt, text in WORLD.texts.items()}
        check = check_texts(trace, wrong)
        assert len(check.partings) == sum(len(request.token_ids) > 2 for request in trace.requests)
        parting, request = check.partings[0], trace.requests[0]
        assert parting.context == (*request.job.prompt, *request.token_ids[:2])
        assert (parting.position, parting.expected, parting.got) == (2, -1, request.token_ids[2])

    def test_an_answer_that_ends_too_early_is_a_difference(self) -> None:
        trace = Trace(requests=(trace_of(job=9, outputs=[(1.0, 3)], ended=1.0),), steps=(), start=0, end=2, users=None)
        check = check_texts(trace, {(1,): (0, 0, 0, 0)})
        assert [(p.position, p.expected, p.got) for p in check.partings] == [(3, 0, None)]


class TestOpenLoop:
    def test_requests_come_when_they_come(self) -> None:
        served = engine(0)
        trace = drive_open(served, TRAFFIC.jobs(4, 0), (0.5, 0.6, 50.0), served.clock)
        assert [request.arrived for request in trace.requests] == [100.5, 100.6, 150.0]
        assert all(request.ended is not None for request in trace.requests)
        second = trace.requests[1]
        assert second.outputs[0].at > trace.requests[0].outputs[0].at  # it came during the first one's prefill
        assert served.clock.skipped == pytest.approx(0.5 + 150.0 - max(r.ended or 0 for r in trace.requests[:2]))

    def test_waiting_counts(self) -> None:
        """One at a time: the second answer's time to the first token has the whole first answer in it."""
        served = engine(0)
        served.most = 1
        trace = drive_open(served, TRAFFIC.jobs(4, 0), (0.0, 0.0), served.clock)
        one, two = trace.requests
        sample = sample_of(trace, LatencyTarget(first_token=2.0, token=2.0))
        assert one.ended is not None
        assert sample.first_token[1] > one.ended - one.arrived
        assert sample.stay_seconds == pytest.approx(sum((r.ended or 0) - r.arrived for r in (one, two)))
        assert (sample.judged, sample.attained) == (2, 1)


def trace_of(job: int, outputs: list[tuple[float, int]], ended: float | None, arrived: float = 0.0) -> RequestTrace:
    return RequestTrace(
        job=Job(prompt=(1,), max_tokens=job),
        arrived=arrived,
        outputs=[Output(at=at, token_ids=(0,) * count, drafted=count - 1) for at, count in outputs],
        ended=ended,
    )


def test_figures_of_a_segment_by_hand() -> None:
    """Watched from 10 to 20: one answer from before, one from inside, one that never got a token."""
    steps = [(9.0, (4,)), (12.0, (3, 0)), (15.0, (1,)), (20.0, ()), (21.0, (7,))]
    trace = Trace(
        requests=(
            trace_of(9, [(9.0, 1), (12.0, 3), (15.0, 2)], 15.0, arrived=8.0),
            trace_of(9, [(16.0, 1), (20.0, 2), (21.0, 5)], None, arrived=11.0),
            trace_of(9, [], None, arrived=19.0),
        ),
        steps=tuple(StepTrace(at=at, stats=StepStats(verify_lens=lens)) for at, lens in steps),
        start=10.0,
        end=20.0,
        users=3,
    )
    sample = sample_of(trace, LatencyTarget(first_token=5.0, token=1.9))
    assert (sample.tokens, sample.seconds, sample.stay_seconds) == (3 + 2 + 1 + 2, 10.0, 30.0)
    assert sample.gaps == ((3.0, 3), (3.0, 2), (4.0, 2))
    assert (sample.later_tokens, sample.later_seconds) == (7, 10.0)
    assert (sample.rounds, sample.verified, sample.accepted) == (3, 4, 2 + 1 + 0 + 1)
    assert sample.first_token == (5.0,)
    assert (sample.judged, sample.attained) == (2, 1)  # 6 s for 5 tokens is in time, 4 s for 2 are not


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"concurrency": ()}, "rising numbers >= 1, got nothing"),
        ({"concurrency": (4, 2)}, "rising numbers >= 1, got 4, 2"),
        ({"concurrency": (0, 2)}, "rising numbers >= 1"),
        ({"arrivals": ("flood",)}, "got 'flood'"),
        ({"max_tokens": 3}, "max_tokens must be >= 4"),
        ({"repeats": 0}, "repeats must be >= 1"),
        ({"seconds": 0.0}, "seconds per point must be above 0"),
        ({"open_seconds": float("nan")}, "seconds of arrivals must be above 0"),
        ({"mixed": False}, "there is no traffic"),
        ({"seed": -1}, "seed must be >= 0"),
    ],
)
def test_plans_that_make_no_sense(change: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        LoadPlan(**change)


def test_points_of_a_plan() -> None:
    plan = LoadPlan(concurrency=(1, 8), arrivals=("poisson", "burst"))
    mixed = traffics([("a", PROMPTS[:2]), ("b", PROMPTS[2:])], each=True, mixed=True)
    names = [point.name for point in plan.points(mixed)]
    assert names == ["mixed x1", "mixed x8", "a x1", "a x8", "b x1", "b x8", "mixed poisson", "mixed burst"]
