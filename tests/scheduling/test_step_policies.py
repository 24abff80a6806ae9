"""The policies: what they decide, on what, and for whom."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.core import InputError
from dspark.scheduling import (
    AcceptanceEstimates,
    AcceptancePrior,
    ChooserOptions,
    ConfidenceThreshold,
    EarlyStop,
    ExplorationOptions,
    FixedLength,
    LiveCosts,
    PastCapacity,
    Reveal,
    SlotBook,
    StepOutcome,
    StepPolicy,
    check_policy,
    make_step_policy,
    oracle_lengths,
)
from dspark.scheduling.step_view import LAG

from .worlds import World, model, run_step, view

BLOCK, SLOTS = 4, 4
FLAT = model([0.02 + 0.0001 * rows for rows in range(64)], [0.004] * 8)
JAGGED = model([0.02 + 0.012 * (rows // 4) for rows in range(64)], [0.004] * 8)
MILD = model([0.02 + 0.002 * rows for rows in range(256)], [0.004] * 32)
DEAR = model([0.02 + 0.02 * rows for rows in range(64)], [0.004] * 8)


def policies(costs=JAGGED, **options) -> list[StepPolicy]:
    kw = {"block_size": BLOCK, "num_slots": SLOTS, "options": ChooserOptions(**options)}
    return [FixedLength(), FixedLength(2), ConfidenceThreshold(0.5), EarlyStop(costs, **kw), PastCapacity(costs, **kw)]


def served(policy: StepPolicy, steps: int = 6, requests: int = 3, seed: int = 0) -> StepPolicy:
    """A policy with a past."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        confidence = rng.beta(3, 1, (requests, BLOCK))
        hits = np.logical_and.accumulate(rng.random((requests, BLOCK)) < confidence, axis=1).sum(axis=1)
        _, outcome = run_step(policy, view(step, [BLOCK] * requests), confidence, hits)
        policy.outcome(outcome)
    return policy


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: policy.name)
def test_all_meet_the_interface(policy: StepPolicy) -> None:
    assert isinstance(policy, StepPolicy)
    drafted, outcome = run_step(policy, view(0, [4, 0, 2]), np.full((3, 4), 0.9), np.array([4, 4, 4]))
    assert drafted[1] == 0
    assert drafted.max() <= 4
    assert (outcome.verified <= outcome.proposed).all()
    policy.outcome(outcome)
    drafted, _ = run_step(policy, view(1, []), np.zeros((0, 4)), np.zeros(0, np.int64))
    assert drafted.shape == (0,)


@pytest.mark.pitfall(6)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_prefix_measurability(data: st.DataObject) -> None:
    """With any past: the token of slot k, which all later confidences saw, never changes whether k is verified."""
    level = st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0])
    rows = data.draw(st.lists(st.lists(level, min_size=BLOCK, max_size=BLOCK), min_size=3, max_size=3))
    r, k = data.draw(st.integers(0, 2)), data.draw(st.integers(0, BLOCK - 1))
    before = np.array(rows)
    after = before.copy()
    after[r, k + 1 :] = data.draw(st.lists(level, min_size=BLOCK - k - 1, max_size=BLOCK - k - 1))
    costs = data.draw(st.sampled_from([FLAT, JAGGED, DEAR]))
    for policy in policies(costs):
        served(policy, seed=data.draw(st.integers(0, 3)))
        plans = []
        for confidence in (before, after):
            drafted, outcome = run_step(copy.deepcopy(policy), view(9, [BLOCK] * 3), confidence, np.zeros(3, np.int64))
            plans.append((drafted.tolist(), min(int(outcome.verified[r]), k + 1)))
        assert plans[0] == plans[1]


@pytest.mark.pitfall(6)
@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
def test_outcomes_may_come_late(kind: type) -> None:
    """Planned while the step before runs, or after it: the same plan. So the same code runs overlapped or in order."""
    plans = []
    for late in (False, True):
        policy, rng = kind(JAGGED, block_size=BLOCK, num_slots=SLOTS), np.random.default_rng(0)
        waiting: list[StepOutcome] = []
        made = []
        for step in range(30):
            confidence = rng.beta(2, 1, (3, BLOCK))
            hits = np.logical_and.accumulate(rng.random((3, BLOCK)) < confidence, axis=1).sum(axis=1)
            drafted, outcome = run_step(policy, view(step, [BLOCK] * 3), confidence, hits)
            made.append((drafted.tolist(), outcome.verified.tolist()))
            waiting.append(outcome)
            while len(waiting) > late:
                policy.outcome(waiting.pop(0))
        plans.append(made)
    assert plans[0] == plans[1]


def test_a_failed_step_can_be_begun_anew() -> None:
    policy = served(PastCapacity(JAGGED, block_size=BLOCK, num_slots=SLOTS))
    first = policy.begin_step(view(6, [BLOCK] * 3))
    assert policy.begin_step(view(6, [BLOCK] * 3)).tolist() == first.tolist()


@pytest.mark.parametrize("kind", [EarlyStop, PastCapacity])
def test_steps_of_prompts_alone_do_not_pile_up(kind: type) -> None:
    """Answers of one token end with their prompts, so that nothing is ever begun; costs are learnt all the same."""
    live = LiveCosts(FLAT)
    policy, nobody = kind(live, block_size=BLOCK, num_slots=SLOTS), np.zeros(0, np.int64)
    counts = {"proposed": nobody, "verified": nobody, "accepted": nobody}
    for step in range(50):
        timed = {"rows": 8, "verify_seconds": 3 * float(FLAT.verify.at(8))}
        policy.outcome(StepOutcome(step=step, slots=nobody, generations=nobody, **counts, **timed))
    assert len(policy.chooser._waiting) < LAG
    assert live.drift() > 1.5


class TestCapacity:
    def test_two_steps_old(self) -> None:
        """What was stated one step ago changes nothing; two steps ago it does."""
        lengths = []
        for last, before in ((0.99, 0.05), (0.05, 0.05), (0.05, 0.99)):
            policy = PastCapacity(MILD, block_size=BLOCK, num_slots=64, options=ChooserOptions(always_draft=True))
            for step, confidence in enumerate((before, last)):
                _, outcome = run_step(
                    policy, view(step, [BLOCK] * 32), np.full((32, BLOCK), confidence), np.zeros(32, int)
                )
                policy.outcome(outcome)
            _, outcome = run_step(policy, view(2, [BLOCK] * 32), np.full((32, BLOCK), 0.5), np.zeros(32, int))
            lengths.append(int(outcome.verified.sum()))
        assert lengths[0] == lengths[1] < lengths[2]

    def test_crosses_a_cliff_that_early_stop_does_not(self) -> None:
        cliff = model([0.02, 0.04, 0.04, 0.04, 0.04], [0.0001])
        options = ChooserOptions(always_draft=True)
        found = {}
        for kind in (EarlyStop, PastCapacity):
            policy = kind(cliff, block_size=BLOCK, num_slots=1, options=options)
            for step in range(4):
                _, outcome = run_step(policy, view(step, [BLOCK]), np.full((1, BLOCK), 0.95), np.array([4]))
                policy.outcome(outcome)
            found[policy.name] = int(outcome.verified[0])
        assert found == {"sync": 0, "async": 4}

    @pytest.mark.pitfall(28)
    def test_fewer_rows_run_when_the_budget_falls(self) -> None:
        """The plan comes before the forward: at a dearer curve, less is verified, not only less is kept."""
        rows = []
        for costs in (FLAT, DEAR):
            policy = PastCapacity(costs, block_size=BLOCK, num_slots=SLOTS, options=ChooserOptions(always_draft=True))
            _, outcome = run_step(served(policy), view(9, [BLOCK] * 3), np.full((3, BLOCK), 0.7), np.array([4] * 3))
            rows.append(outcome.rows)
        assert rows[0] == 3 + 12
        assert rows[1] < 6

    def test_prefill_rows_count(self) -> None:
        steep = model([0.02 if rows < 20 else 0.1 for rows in range(64)], [0.0001] * 3)
        policy = served(PastCapacity(steep, block_size=BLOCK, num_slots=SLOTS))
        plans = [
            run_step(copy.deepcopy(policy), view(9, [4] * 3, prefill=n), np.ones((3, 4)), np.array([4] * 3))[1]
            for n in (0, 14)
        ]
        assert plans[0].verified.sum() == 12
        assert plans[1].verified.sum() == 3
        assert plans[1].rows == 20


class TestGenerations:
    def test_nothing_of_a_finished_request_is_inherited(self) -> None:
        """A fresh request in a used slot is planned like one in a slot that nobody had; a surviving one is not."""
        for kind in (EarlyStop, PastCapacity):
            policy = kind(FLAT, block_size=BLOCK, num_slots=SLOTS, options=ChooserOptions(always_draft=True))
            for step in range(6):
                confidence = np.array([[0.99] * BLOCK, [0.3] * BLOCK])
                _, outcome = run_step(policy, view(step, [BLOCK] * 2), confidence, np.array([4, 0]))
                policy.outcome(outcome)
            chooser = policy.chooser
            policy.begin_step(view(8, [BLOCK] * 4, generations=[50, 1, 51, 52]))
            drafts = policy._drafts
            assert drafts is not None
            assert drafts.expected[0].tolist() == drafts.expected[2].tolist() == drafts.expected[3].tolist()
            assert drafts.expected[1].tolist() != drafts.expected[0].tolist()
            past = chooser.past(view(8, [BLOCK] * 4, generations=[50, 1, 51, 52]), drafts)
            assert past[0, 0].tolist() == past[0, 2].tolist()
            assert past[0, 1] == pytest.approx(np.cumprod([0.3] * BLOCK), rel=1e-6)

    def test_an_outcome_of_the_one_before_goes_to_the_pool_only(self) -> None:
        """It is two steps late, so its request may have gone when it is used."""
        policy = PastCapacity(DEAR, block_size=BLOCK, num_slots=1, options=ChooserOptions(always_draft=True))
        _, outcome = run_step(policy, view(0, [BLOCK], generations=[7]), np.full((1, BLOCK), 0.01), np.array([0]))
        policy.outcome(outcome)
        policy.begin_step(view(1, [BLOCK], generations=[8]))
        policy.begin_step(view(2, [BLOCK], generations=[8]))
        drafts = policy._drafts
        assert drafts is not None
        pooled = policy.chooser.acceptance.pooled
        np.testing.assert_allclose(drafts.expected[0], np.cumprod(pooled))
        np.testing.assert_allclose(
            policy.chooser.past(view(2, [BLOCK], generations=[8]), drafts)[0, 0], np.cumprod(pooled)
        )

    def test_two_requests_in_one_slot_are_a_fault(self) -> None:
        policy = PastCapacity(DEAR, block_size=BLOCK, num_slots=2)
        seen = view(0, [1, 1])
        bad = type(seen)(step=0, slots=np.array([1, 1]), generations=np.array([1, 2]), limits=seen.limits)
        with pytest.raises(AssertionError, match="share a slot"):
            policy.begin_step(bad)

    def test_slot_book(self) -> None:
        book = SlotBook(2)
        slots, generations = book.slots(["a", "b"])
        assert sorted(slots.tolist()) == [0, 1]
        book.release("a")
        book.release("never seen")
        again, others = book.slots(["b", "c"])
        assert (again[0], others[0]) == (slots[1], generations[1])
        assert again[1] == slots[0]
        assert others[1] not in generations
        with pytest.raises(AssertionError, match="more requests"):
            book.slots(["d"])
        assert book.slots([])[0].shape == (0,)


class TestAcceptance:
    def test_starts_from_the_stated_prior(self) -> None:
        estimates = AcceptanceEstimates(3, 4, AcceptancePrior(mean=0.6))
        np.testing.assert_allclose(estimates.conditional(np.arange(3)), 0.6)

    def test_learns_per_request_and_pooled(self) -> None:
        estimates = AcceptanceEstimates(3, 4)
        slots, known = np.arange(2), np.array([True, True])
        for _ in range(40):
            estimates.observe(slots, known, np.array([4, 4]), np.array([4, 0]))
        good, bad, fresh = estimates.conditional(np.arange(3))
        assert good[0] > 0.8
        assert bad[0] < 0.2
        assert bad[0] < fresh[0] < good[0]
        np.testing.assert_allclose(fresh, estimates.pooled)

    def test_censored_positions_follow_their_predecessor(self) -> None:
        estimates = AcceptanceEstimates(1, 4)
        for _ in range(100):
            estimates.observe(np.array([0]), np.array([True]), np.array([1]), np.array([1]))
        assert estimates.pooled.tolist() == [estimates.pooled[0]] * 4
        assert estimates.pooled[0] > 0.95

    def test_positions_behind_a_rejection_are_no_trials(self) -> None:
        estimates = AcceptanceEstimates(1, 3)
        estimates.observe(np.array([0]), np.array([True]), np.array([3]), np.array([1]))
        assert estimates._trials.tolist() == [1, 1, 0]
        assert estimates._hits.tolist() == [1, 0, 0]

    @pytest.mark.parametrize("fields", [{"mean": 0.0}, {"mean": 1.0}, {"request_strength": 0}, {"pooled_memory": 1}])
    def test_bad_priors(self, fields: dict) -> None:
        with pytest.raises(InputError):
            AcceptancePrior(**fields)


class TestForms:
    def test_sync_verifies_less_where_it_is_dear(self) -> None:
        options = ChooserOptions(always_draft=True, exploration=ExplorationOptions(share=0.0))
        dear, cheap = (EarlyStop(costs, block_size=BLOCK, num_slots=2, options=options) for costs in (DEAR, FLAT))
        assert (dear.name, dear.needs_confidence) == ("sync", True)
        confidence, hits = np.full((2, 4), 0.9), np.array([0, 0])
        plans = [run_step(policy, view(0, [4, 2]), confidence, hits)[1].verified for policy in (cheap, dear)]
        assert plans[0].tolist() == [4, 2]
        assert plans[1].sum() < 6

    def test_fixed_and_threshold(self) -> None:
        confidence = np.array([[0.9, 0.4, 0.9, 0.9], [0.6, 0.6, 0.6, 0.2]])
        expected = {"fixed": [4, 3], "fixed:0": [0, 0], "fixed:3": [3, 3], "threshold:0.5": [1, 3]}
        for text, lengths in expected.items():
            policy = make_step_policy(text, block_size=4, num_slots=2)
            _, outcome = run_step(policy, view(0, [4, 3]), confidence, np.array([0, 0]))
            assert outcome.verified.tolist() == lengths

    @pytest.mark.parametrize("text", ["fixed", "fixed:3", "threshold:0.5", "sync", "async"])
    def test_names(self, text: str) -> None:
        policy = make_step_policy(text, FLAT, block_size=4, num_slots=2)
        assert policy.name == text
        assert make_step_policy(policy, FLAT, block_size=4, num_slots=2) is policy

    def test_bad_names(self) -> None:
        with pytest.raises(InputError, match=r"did you mean 'async'\? expected one of: async, sync, fixed, "):
            make_step_policy("asinc", FLAT, block_size=4, num_slots=2)
        with pytest.raises(InputError, match="must be a text or a StepPolicy"):
            make_step_policy(PastCapacity, FLAT, block_size=4, num_slots=2)  # type: ignore[arg-type]

    @pytest.mark.pitfall(31)
    def test_sync_without_a_confidence_head_is_refused_and_async_does_without(self) -> None:
        sync, past = (make_step_policy(name, FLAT, block_size=4, num_slots=4) for name in ("sync", "async"))
        with pytest.raises(InputError, match="'sync' needs a drafter with a confidence head"):
            check_policy(sync, has_confidence=False)
        check_policy(past, has_confidence=False)
        drafted, outcome = run_step(past, view(0, [4] * 3), None, np.array([4] * 3))
        assert drafted.tolist() == [4] * 3
        assert outcome.verified.sum() > 0


def test_oracle_verifies_nothing_in_vain() -> None:
    lengths = oracle_lengths(np.array([4, 0, 2]), view(0, [4] * 3), FLAT)
    assert lengths.tolist() == [4, 0, 2]
    assert oracle_lengths(np.array([1, 0, 0]), view(0, [4] * 3), DEAR).tolist() == [0, 0, 0]
    assert oracle_lengths(np.array([9, 9]), view(0, [2, 0]), FLAT).tolist() == [2, 0]
    assert oracle_lengths(np.zeros(0, np.int64), view(0, []), FLAT).tolist() == []


def test_costs_learn_from_outcomes() -> None:
    live = LiveCosts(FLAT)
    policy = PastCapacity(live, block_size=BLOCK, num_slots=1)
    for step in range(200):
        _, outcome = run_step(policy, view(step, [BLOCK]), np.full((1, BLOCK), 0.9), np.array([3]))
        timed = {"verify_seconds": 3 * float(FLAT.verify.at(outcome.rows)), "draft_seconds": 0.008}
        policy.outcome(StepOutcome(**(outcome.__dict__ | timed)))
    assert live.verify_curve(5, 0)[5] == pytest.approx(3 * float(FLAT.verify.at(5)), rel=0.05)
    assert live.draft_curve(1, BLOCK)[1] == pytest.approx(0.008, rel=0.05)


def test_reveal_of_a_policy_is_used_up() -> None:
    policy = PastCapacity(FLAT, block_size=BLOCK, num_slots=1)
    with pytest.raises(AssertionError, match="admit before begin_step"):
        policy.admit(Reveal([1], [[0.5]]))


def test_worlds_agree_with_themselves() -> None:
    world = World(FLAT, 2, BLOCK, lambda _: np.ones((2, BLOCK)))
    world.run(FixedLength(), 5)
    assert world.tokens == [10] * 5
