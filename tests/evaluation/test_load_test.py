"""Load tests on a made-up engine: turns, budgets, the oracle, figures and answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dspark.evaluation import Arm, can_plot
from dspark.evaluation.bootstrap import Estimate
from dspark.evaluation.load import (
    CLOSED,
    ArmFacts,
    Bar,
    LoadFigures,
    LoadPlan,
    LoadReport,
    LoadTest,
    OngoingPolicy,
    OraclePolicy,
    OracleServer,
    Percentiles,
    Point,
    Sample,
    Segment,
    Server,
    TextCheck,
    Traffic,
    Window,
    bars_of,
    drive_closed,
    load_markdown,
    make_load_report,
    plot_load,
    traffics,
    trends_of,
)
from dspark.evaluation.load.bars import BEST, NEVER, SINGLE, WHOLE
from dspark.scheduling import EarlyStop, FixedLength, PastCapacity, StepOutcome, StepPolicy, StepView

from .made_up_engine import BLOCK, MadeUpClock, MadeUpEngine, World, costs

PROMPTS = tuple((number,) * 4 for number in range(12))
WORLD = World.drawn(PROMPTS)
COSTS = costs()
USERS = (1, 4, 16)


@dataclass
class MadeUpArm:
    """A policy on the made-up engine; all arms share one clock and write into one list whose turn it is."""

    name: str
    make: Callable[[int], StepPolicy]
    clock: MadeUpClock
    turns: list[tuple[str, str, int]] = field(default_factory=list)
    policies: dict[int, OngoingPolicy] = field(default_factory=dict)
    fail_at: int | None = None

    def open(self, point: Point, prompts: Sequence[tuple[int, ...]], max_tokens: int) -> Server:
        self.turns.append((self.name, point.name, max_tokens))
        ongoing = self.policies.setdefault(point.users, OngoingPolicy(self.make(point.users)))
        ongoing.next_engine()
        engine = MadeUpEngine(WORLD, ongoing, COSTS, self.clock, most=point.users)
        engine.fail_at = self.fail_at
        return OracleServer(engine, ongoing.policy) if isinstance(ongoing.policy, OraclePolicy) else engine


FACTS = (
    ArmFacts(name="plain", drafter="", policy="plain", length=0, block_size=0),
    ArmFacts(name="d fixed:2", drafter="d", policy="fixed:2", length=2, block_size=BLOCK),
    ArmFacts(name="d fixed:4", drafter="d", policy="fixed:4", length=4, block_size=BLOCK),
    ArmFacts(name="d sync", drafter="d", policy="sync", length=None, block_size=BLOCK),
    ArmFacts(name="d async", drafter="d", policy="async", length=None, block_size=BLOCK),
    ArmFacts(name="d oracle", drafter="d", policy="oracle", length=None, block_size=BLOCK),
)


def made_up_arms() -> list[MadeUpArm]:
    clock, turns = MadeUpClock(), []
    makers: list[Callable[[int], StepPolicy]] = [
        lambda slots: FixedLength(0),
        lambda slots: FixedLength(2),
        lambda slots: FixedLength(4),
        lambda slots: EarlyStop(COSTS, block_size=BLOCK, num_slots=slots),
        lambda slots: PastCapacity(COSTS, block_size=BLOCK, num_slots=slots),
        lambda slots: OraclePolicy(WORLD.accepted, COSTS),
    ]
    return [MadeUpArm(facts.name, make, clock, turns) for facts, make in zip(FACTS, makers, strict=True)]


PLAN = LoadPlan(concurrency=USERS, arrivals=("ramp",), max_tokens=24, seconds=160.0, repeats=2, open_seconds=120.0)
MIXED = traffics([("easy", PROMPTS[1::2]), ("hard", PROMPTS[::2])], each=False, mixed=True)


def load_test(arms: Sequence[MadeUpArm], plan: LoadPlan = PLAN) -> LoadTest:
    return LoadTest(arms, MIXED, plan, WORLD.texts, lambda: arms[0].clock)


@pytest.fixture(scope="module")
def segments() -> list[Segment]:
    test = load_test(made_up_arms())
    return [segment for group in test.run(test.budgets(), lambda done, note: None) for segment in group]


@pytest.fixture(scope="module")
def report(segments: list[Segment], plain: Arm) -> LoadReport:
    return make_load_report(segments, FACTS, PLAN, plain, capacity=1.0, complete=True)


def test_arms_take_turns_in_short_segments() -> None:
    arms = made_up_arms()
    test = load_test(arms)
    budgets = test.budgets()
    tried = len(arms[0].turns)
    told: list[int] = []
    groups = list(test.run(budgets, lambda done, note: told.append(done)))
    turns = arms[0].turns[tried:]
    assert len(groups) == 4 * 2
    assert len(turns) == 4 * 2 * 6 == len(told)
    for number, group in enumerate(groups):
        block = turns[6 * number : 6 * number + 6]
        assert {name for name, _, _ in block} == {facts.name for facts in FACTS}
        assert len({point for _, point, _ in block}) == len({(s.point, s.repeat) for s in group}) == 1
        assert block[0][0] == FACTS[(number // 4 + number % 4) % 6].name, "another begins at every load and repeat"
    assert told == sorted(told)
    assert told[-1] == pytest.approx(test.seconds(budgets), abs=1)


def test_all_arms_do_the_same_work(segments: list[Segment]) -> None:
    """Closed loops end at the same number of tokens, open loops answer the same requests."""
    for point in {segment.point for segment in segments}:
        for repeat in range(2):
            tokens = [s.sample.tokens for s in segments if (s.point, s.repeat) == (point, repeat)]
            assert max(tokens) - min(tokens) <= (point.users * (BLOCK + 1) if point.is_closed else 0)


def test_budgets_are_those_of_plain_decoding(segments: list[Segment]) -> None:
    for segment in segments:
        if segment.arm == "plain" and segment.point.is_closed:
            assert segment.sample.seconds == pytest.approx(PLAN.segment_seconds, rel=0.1)


def test_texts_are_all_the_same(segments: list[Segment]) -> None:
    assert sum(segment.texts.texts for segment in segments) > 300
    assert not any(segment.texts.partings for segment in segments)


def test_the_oracle_is_the_bound(segments: list[Segment]) -> None:
    """It verifies nothing in vain, and nobody is faster at any load."""
    figures = LoadFigures(segments, FACTS, PLAN)
    for point in figures.points:
        rates = {facts.name: figures.service(point, facts.name).value for facts in FACTS}
        assert max(rates, key=lambda name: rates[name]) == "d oracle", (point.name, rates)
        samples = figures.samples(point, "d oracle")
        assert sum(s.verified for s in samples) == sum(s.accepted for s in samples) > 0
        shares = [figures.oracle_share(point, facts) for facts in FACTS[3:5]]
        assert all(share is not None and share.value < 1.0 for share in shares)


def test_what_was_finished_before_ctrl_c_counts(plain: Arm) -> None:
    arms = made_up_arms()
    test = load_test(arms)
    budgets, kept = test.budgets(), []
    running = test.run(budgets, lambda done, note: None)
    kept.extend(next(running))
    kept.extend(next(running))
    arms[3].fail_at = 5
    with pytest.raises(KeyboardInterrupt):
        next(running)
    report = make_load_report(kept, FACTS, PLAN, plain, capacity=budgets.capacity, complete=False)
    assert [row.point.name for row in report.rows[::6]] == ["mixed x1", "mixed x4"]
    assert all(row.over_plain.low is None for row in report.rows)  # one repeat has no interval
    assert "**Interrupted**" in load_markdown(report)


def test_a_policy_lives_on_from_engine_to_engine() -> None:
    seen: list[StepView] = []
    told: list[StepOutcome] = []

    class Noting(FixedLength):
        def begin_step(self, view: StepView) -> np.ndarray:
            seen.append(view)
            return super().begin_step(view)

        def outcome(self, outcome: StepOutcome) -> None:
            told.append(outcome)

    ongoing = OngoingPolicy(Noting(1))
    for _ in range(3):
        ongoing.next_engine()
        engine = MadeUpEngine(WORLD, ongoing, COSTS, MadeUpClock())
        two = Traffic(name="x", domains=(PROMPTS[:2],))
        drive_closed(engine, two.jobs(8, 0), 2, Window(tokens=20), engine.clock)
    assert [view.step for view in seen] == sorted({view.step for view in seen})
    assert [(o.step, o.generations.tolist()) for o in told] == [(v.step, v.generations.tolist()) for v in seen]
    starts = [number for number, (a, b) in enumerate(pairwise(seen)) if b.step > a.step + 1]
    assert len(starts) == 2
    for start in starts:
        assert max(v.generations.max() for v in seen[: start + 1]) < min(v.generations.min() for v in seen[start + 1 :])


def _segment(point: Point, arm: str, repeat: int, tokens: int) -> Segment:
    sample = Sample(
        tokens=tokens,
        seconds=10.0,
        stay_seconds=10.0 * point.users,
        rounds=10,
        verified=20,
        accepted=5,
        first_token=(1.0,),
        gaps=((0.4, 2), (0.1, 1)),
        judged=4,
        attained=3,
    )
    return Segment(point=point, arm=arm, repeat=repeat, sample=sample, texts=TextCheck(texts=3, partings=()))


TABLE = {
    "plain": (100, 100, 100),
    "d fixed:2": (150, 120, 110),
    "d fixed:4": (180, 110, 60),
    "d sync": (150, 130, 100),
    "d async": (175, 132, 108),
    "d oracle": (200, 150, 101),
}
"""Tokens by number of users."""


def _figures() -> LoadFigures:
    points = [Point(traffic="mixed", arrivals=CLOSED, users=users) for users in USERS]
    made = [
        _segment(point, arm, repeat, tokens)
        for repeat in range(2)
        for place, point in enumerate(points)
        for arm, row in TABLE.items()
        for tokens in [row[place]]
    ]
    return LoadFigures(made, FACTS, PLAN)


def test_answers_by_hand() -> None:
    bars = bars_of(_figures())
    found = {(bar.claim, bar.place): bar for bar in bars}
    best = [found[BEST, f"mixed x{users}"] for users in USERS]
    assert [bar.against for bar in best] == ["d fixed:4", "d fixed:2", "d fixed:2"]
    assert [bar.ratio.value for bar in best] == pytest.approx([175 / 180, 1.1, 108 / 110])
    assert [bar.verdict for bar in best] == ["yes", "yes", "yes"]
    single = next(bar for bar in bars if bar.claim == SINGLE)
    assert single.against == "d fixed:2"
    assert single.ratio.value == pytest.approx((175 / 150 * 132 / 120 * 108 / 110) ** (1 / 3))
    (whole,) = [bar for bar in bars if bar.claim == WHOLE]
    assert (whole.place, whole.ratio.value) == ("mixed x16", pytest.approx(1.8))
    assert [bar.ratio.value for bar in bars if bar.claim == NEVER] == pytest.approx([1.75, 1.32, 1.08])


def test_share_of_the_oracle_by_hand() -> None:
    figures = _figures()
    shares = [figures.oracle_share(point, FACTS[4]) for point in figures.points]
    assert [share and share.value for share in shares] == [pytest.approx(0.75), pytest.approx(0.64), None]


def test_rows_by_hand() -> None:
    row = next(row for row in _figures().rows() if row.arm == "d async" and row.point.users == 4)
    assert row.tokens_per_second == Estimate(value=13.2, low=13.2, high=13.2)
    assert row.service.value == pytest.approx(3.3)
    assert row.user_tokens_per_second.value == pytest.approx(6 / 1.0)
    assert (row.repeats, row.texts, row.differing) == (2, 6, 0)
    assert row.rows_per_token == pytest.approx(60 / 6)
    assert (row.accepted_share, row.verify_len, row.attainment) == (0.25, 2.0, 0.75)
    assert row.token == Percentiles(p50=0.2, p95=0.2, p99=0.2)
    assert row.output_gap == Percentiles(p50=0.1, p95=0.4, p99=0.4)


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.0, 0.98, 1.02, "yes"),
        (1.0, 0.90, 1.02, "likely"),
        (1.0, None, None, "likely"),
        (0.9, 0.8, 1.02, "unlikely"),
        (0.9, 0.8, 0.96, "no"),
        (0.9, None, None, "unlikely"),
    ],
)
def test_verdicts(value: float, low: float | None, high: float | None, verdict: str) -> None:
    ratio = Estimate(value=value, low=low, high=high)
    bar = Bar(claim=BEST, drafter="d", place="x", against="y", ratio=ratio, goal=0.97)
    assert bar.verdict == verdict


def test_trends(report: LoadReport) -> None:
    length, share = trends_of(report.rows, FACTS)
    assert (length.figure, length.users, length.falls) == ("mean verify length", USERS, True)
    assert length.values == tuple(row.verify_len for row in report.rows if row.arm == "d async" and row.point.is_closed)
    assert length.holds == (length.values[0] * 1.05 >= length.values[1] and length.values[1] * 1.05 >= length.values[2])
    assert share.falls is False


def test_report_on_disk(report: LoadReport, tmp_path: Path) -> None:
    raw = json.loads(report.to_json())
    assert raw["schema"] == "dspark-bench-serve/1"
    assert len(raw["rows"]) == 4 * 6
    assert {bar["verdict"] for bar in raw["bars"]} <= {"yes", "likely", "unlikely", "no"}
    text = load_markdown(report)
    for said in ("## Does it pay?", "## mixed x16", "## mixed ramp", "| d oracle", "rises with load", BEST):
        assert said in text
    if can_plot():
        for name in plot_load(report, tmp_path):
            assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
