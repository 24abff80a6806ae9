"""What simulation keeps, what it must give in worlds that can be worked out, and that queues behave as queues do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.evaluation.load.arrivals import Stretch, arrival_times
from dspark.simulation import ClosedLoop, Cluster, CurveShape, History, OpenLoop, ReplicaOptions, simulate, steady

from .worlds import RISING, even, flat, uneven

POLICIES = ("fixed:0", "fixed:2", "fixed", "threshold:0.6", "sync", "async", "oracle")
COSTS = RISING.cost_model("rising")


def rate(history: History, users: int) -> float:
    """Tokens that rounds wrote, per second, in the middle of a closed loop."""
    window = steady(history, users)
    return float(history.committed[window.holds(history.end)].sum() / window.seconds)


def check(history: History, replicas: int) -> None:
    """Nothing is lost, nothing comes from nowhere, and time goes forward."""
    assert int(history.committed.sum() + history.started.sum()) == int(history.answer.sum())
    assert int(history.started.sum()) == len(history.answer)
    assert (history.accepted <= history.verified).all()
    assert (history.committed <= history.accepted + history.decoding).all()
    assert (history.rows == history.prefill + history.decoding + history.verified).all()
    assert (history.arrived < history.first).all()
    assert (history.first <= history.ended).all()
    assert (history.piece_gap > 0).all()
    written = np.bincount(history.piece_request, history.piece_tokens, minlength=len(history.answer))
    assert (written == history.answer - 1).all()
    waited = np.bincount(history.piece_request, history.piece_gap, minlength=len(history.answer))
    assert np.allclose(waited, history.ended - history.first)
    for number in range(replicas):
        ends = history.end[history.replica == number]
        starts = ends - history.seconds[history.replica == number]
        assert (starts[1:] >= ends[:-1] - 1e-9).all(), "an engine ran two steps at a time"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("replicas", [1, 3])
def test_nothing_is_lost(policy: str, replicas: int) -> None:
    texts = uneven(60, prompt=[1, 40, 300], answer=[1, 2, 17, 60])
    options = ReplicaOptions(max_requests=8, max_batch_rows=64)
    cluster = Cluster(costs=COSTS, replicas=replicas, options=options)
    for arrivals in (ClosedLoop(users=20), OpenLoop(times=np.linspace(0, 1, 60))):
        history = simulate(cluster, texts, arrivals, policy)
        check(history, replicas)
        assert int(history.prefill.sum()) == int(texts.lengths.prompt.sum())
        assert history.rows.max() <= 64
        assert history.decoding.max() <= 8


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 30)), max_size=12),
    users=st.integers(1, 9),
    room=st.integers(1, 5),
    slack=st.integers(0, 30),
    policy=st.sampled_from(POLICIES),
)
def test_nothing_is_lost_in_odd_sizes(sizes, users: int, room: int, slack: int, policy: str) -> None:
    prompts, answers = zip(*sizes, strict=True) if sizes else ((1,), (1,))
    texts = uneven(len(sizes), prompt=prompts, answer=answers)
    options = ReplicaOptions(max_requests=room, max_batch_rows=room + slack)
    history = simulate(Cluster(costs=COSTS, options=options), texts, ClosedLoop(users=users), policy)
    if sizes:
        check(history, 1)
    else:
        assert history.duration == 0.0


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_again(policy: str) -> None:
    cluster = Cluster(costs=COSTS, replicas=2)
    one, other = (simulate(cluster, uneven(24, seed=3, answer=40), ClosedLoop(users=16), policy) for _ in range(2))
    for name, values in vars(one).items():
        assert np.array_equal(values, getattr(other, name)), name


def test_another_seed_is_another_world() -> None:
    one, other = (simulate(Cluster(costs=COSTS), uneven(9, seed=seed), ClosedLoop(users=3), "fixed") for seed in (0, 1))
    assert one.duration != other.duration


class TestClosedForms:
    @pytest.mark.parametrize(("k", "acceptance"), [(0, 0.7), (1, 0.7), (4, 0.7), (4, 0.0), (3, 1.0)])
    def test_one_acceptance_and_flat_costs(self, k: int, acceptance: float) -> None:
        """Tokens a round are 1 + a + .. + a^k; a step takes drafting and verifying."""
        users, verify, draft = 16, 0.02, 0.005
        texts = even(96, acceptance, answer=400)
        history = simulate(Cluster(costs=flat(verify, draft)), texts, ClosedLoop(users=users), f"fixed:{k}")
        tau = sum(acceptance**j for j in range(k + 1))
        seconds = verify + (draft if k else 0.0)
        assert rate(history, users) == pytest.approx(users * tau / seconds, rel=0.03)

    def test_rows_have_their_price(self) -> None:
        """Plain decoding: tokens per second are users over the time of so many rows."""
        users = 40
        history = simulate(Cluster(costs=COSTS), even(160, 0.5, answer=200), ClosedLoop(users=users), "fixed:0")
        assert rate(history, users) == pytest.approx(users / float(COSTS.verify.at(users)), rel=0.02)

    def test_context_has_its_price(self) -> None:
        """Prompts of 1000 tokens make rows dearer by what 1000 keys cost."""
        cluster = Cluster(costs=CurveShape(step=10, row=0.1, keys=0.5).cost_model("keys"))
        short, long = (
            simulate(cluster, even(1, 0.0, prompt=prompt, answer=11), ClosedLoop(users=1), "fixed:0")
            for prompt in (1, 1001)
        )
        assert np.allclose(long.seconds[long.decoding > 0] - short.seconds[short.decoding > 0], 0.0005)

    def test_the_chance_of_acceptance_is_the_confidence(self) -> None:
        """With a head that sees everything, drafts said to be accepted with 0.7 .. 0.8 are so in that share."""
        texts = uneven(400, answer=100)
        request, output = np.repeat(np.arange(400), 90), np.tile(np.arange(1, 91), 400)
        blocks = texts.blocks(request, output, output)
        said, hit = blocks.confidence[:, 0], blocks.would_accept > 0
        for low in np.arange(0.1, 1.0, 0.1):
            inside = (said >= low) & (said < low + 0.1)
            assert hit[inside].mean() == pytest.approx(said[inside].mean(), abs=0.03)


class TestQueues:
    def test_littles_law(self) -> None:
        """Requests in progress are on average their rate times their stay."""
        times = arrival_times([Stretch(seconds=60, start=4, end=4)], 0)
        texts = even(len(times), 0.6, answer=50)
        history = simulate(Cluster(costs=COSTS), texts, OpenLoop.of(times), "fixed:2")
        moments = np.linspace(0, history.duration, 20_000)
        came, went = (np.searchsorted(np.sort(t), moments) for t in (history.arrived, history.ended))
        stay = (history.ended - history.arrived).mean()
        assert (came - went).mean() == pytest.approx(len(times) / history.duration * stay, rel=0.01)

    def test_a_closed_loop_keeps_its_users_busy(self) -> None:
        users = 12
        history = simulate(Cluster(costs=COSTS), even(60, 0.6), ClosedLoop(users=users), "fixed:2")
        for moment in np.linspace(history.duration / 4, history.duration / 2, 50):
            assert ((history.arrived <= moment) & (moment < history.ended)).sum() == users

    def test_where_there_is_no_room_requests_wait_in_order(self) -> None:
        options = ReplicaOptions(max_requests=2, max_batch_rows=16)
        history = simulate(
            Cluster(costs=COSTS, options=options), even(30, 0.6, answer=20), OpenLoop(times=np.zeros(30)), "fixed"
        )
        assert (np.diff(history.first) >= 0).all()
        assert history.first[-1] > 10 * history.first[0]

    def test_many_engines_share_the_work(self) -> None:
        """Four engines with four times the users are four times one engine, and get equal shares."""
        one = simulate(Cluster(costs=COSTS), even(64, 0.6), ClosedLoop(users=16), "fixed:2")
        four = simulate(Cluster(costs=COSTS, replicas=4), even(256, 0.6), ClosedLoop(users=64), "fixed:2")
        assert rate(four, 64) == pytest.approx(4 * rate(one, 16), rel=0.05)
        shares = np.bincount(four.replica, four.committed)
        assert shares.min() > 0.9 * shares.max()

    def test_a_request_goes_where_least_is_to_do(self) -> None:
        """One long answer keeps an engine; the short ones go to the other, one after the other."""
        texts = even(6, 0.0, answer=[400, 20, 20, 20, 20, 20])
        history = simulate(Cluster(costs=COSTS, replicas=2), texts, ClosedLoop(users=2), "fixed:0")
        assert int((history.decoding[history.replica == 1]).sum()) == 5 * 19
        assert history.decoding.max() == 1


class TestPolicies:
    @pytest.mark.parametrize("users", [1, 8, 48])
    def test_async_is_about_the_best_of_all_fixed_lengths(self, users: int) -> None:
        texts = uneven(max(3 * users, 16), answer=80)
        speeds = {
            policy: rate(simulate(Cluster(costs=COSTS), texts, ClosedLoop(users=users), policy), users)
            for policy in (*(f"fixed:{k}" for k in range(6)), "async", "oracle")
        }
        fixed = max(speed for policy, speed in speeds.items() if policy.startswith("fixed"))
        assert speeds["async"] >= 0.98 * fixed
        assert speeds["oracle"] >= 0.99 * max(speeds.values())

    def test_less_is_verified_under_load(self) -> None:
        """On a curve without stairs; in front of a cliff less is verified than behind it."""
        cluster, budgets = Cluster(costs=replace(RISING, tile=1, cliffs=()).cost_model("smooth")), []
        for users in (1, 16, 48, 160):
            history = simulate(cluster, uneven(2 * users + 10, answer=80), ClosedLoop(users=users), "async")
            budgets.append(history.verified.sum() / history.decoding.sum())
        assert budgets == sorted(budgets, reverse=True)
        assert budgets[0] > 2 * budgets[-1]

    @pytest.mark.parametrize("policy", ["sync", "async"])
    def test_drafts_that_are_never_right(self, policy: str) -> None:
        plain, found = (
            rate(simulate(Cluster(costs=COSTS), even(64, 0.0), ClosedLoop(users=16), name), 16)
            for name in ("fixed:0", policy)
        )
        assert found > 0.98 * plain

    def test_a_wrong_profile_is_corrected_by_what_steps_take(self) -> None:
        """Told that rows cost half as much as they do, the policy soon decides as if it had been told the truth."""
        texts, users = uneven(160, answer=120), 48
        wrong = replace(RISING, row=RISING.row / 2).cost_model("wrong")
        told, misled = (
            simulate(Cluster(costs=COSTS, believed=believed), texts, ClosedLoop(users=users), "async")
            for believed in (None, wrong)
        )
        assert rate(misled, users) > 0.95 * rate(told, users)


def test_a_huge_load() -> None:
    """Ten thousand requests at once, over many engines."""
    options = ReplicaOptions(max_requests=256)
    texts = even(10_000, 0.8, answer=20)
    history = simulate(
        Cluster(costs=COSTS, replicas=16, options=options), texts, OpenLoop(times=np.zeros(10_000)), "fixed:2"
    )
    assert int(history.committed.sum()) == 10_000 * 19
    assert history.decoding.max() == 256
