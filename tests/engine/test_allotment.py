"""Who runs and who gets how many rows."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.core import FinishReason, SamplingParams
from dspark.engine.allotment import allot
from dspark.engine.ending import Ending
from dspark.engine.roster import Roster
from dspark.engine.sequence import Request, Sequence
from dspark.kvcache import PagePool

BLOCK, PAGE = 4, 4


def sequence(arrival: int, prompt: int, output: int = 0, computed: int = 0, limit: int = 50) -> Sequence:
    request = Request(
        request_id=f"r{arrival}",
        prompt=None,
        prompt_token_ids=tuple(range(prompt)),
        params=SamplingParams(),
        ending=Ending(max_tokens=limit),
        decode=None,
    )
    ids = list(range(prompt + output))
    return Sequence(
        request=request,
        index=0,
        seed=0,
        arrival=arrival,
        num_prompt=prompt,
        token_ids=ids,
        num_computed=computed,
    )


def ready(arrival: int, limit: int = 50) -> Sequence:
    return sequence(arrival, 3, output=2, computed=4, limit=limit)


def test_decoding_first_prompts_fill_the_rest() -> None:
    given = [ready(0), sequence(1, 30), ready(2)]
    found = allot(given, BLOCK, 32)
    assert (found.ready, found.limits) == ((given[0], given[2]), (4, 4))
    assert found.chunks == ((given[1], 22),)
    assert (found.num_finishing, found.num_drafting, found.num_prefill_rows) == (0, 2, 22)


def test_blocks_are_cut_evenly_when_rows_are_short() -> None:
    found = allot([ready(i) for i in range(5)], BLOCK, 17)
    assert found.limits == (2,) * 5
    assert allot([ready(i) for i in range(5)], BLOCK, 5).limits == (0,) * 5


def test_those_that_cannot_draft_come_last() -> None:
    last = ready(0, limit=3)
    found = allot([last, ready(1)], BLOCK, 32)
    assert found.ready[1] is last
    assert found.limits == (4, 0)


def test_prompts_keep_a_share_when_blocks_could_take_all() -> None:
    found = allot([*(ready(i) for i in range(6)), sequence(6, 40)], BLOCK, 32)
    assert found.num_prefill_rows >= 4
    assert found.limits == (3,) * 6


def test_finished_prompts_come_first_and_are_judged() -> None:
    long, short, resumed = sequence(0, 40), sequence(1, 3), sequence(2, 5, output=3)
    found = allot([long, short, resumed], BLOCK, 24)
    assert [s for s, _ in found.chunks[: found.num_finishing]] == [short]
    assert {s.arrival: rows for s, rows in found.chunks} == {0: 14, 1: 3, 2: 7}
    assert found.judged == (short,)


@given(
    prompts=st.lists(st.integers(1, 60), max_size=8),
    decoding=st.integers(0, 8),
    rows=st.integers(16, 64),
)
def test_no_row_too_many_and_nobody_forgotten(prompts: list[int], decoding: int, rows: int) -> None:
    given = [ready(i) for i in range(decoding)]
    given += [sequence(decoding + i, length) for i, length in enumerate(prompts)]
    found = allot(given, BLOCK, rows)
    used = len(found.ready) + sum(found.limits) + found.num_prefill_rows
    assert used <= rows
    assert len(found.ready) == decoding
    if prompts:
        assert found.chunks
        oldest = {s.arrival: taken for s, taken in found.chunks}[decoding]
        assert oldest == prompts[0] or oldest >= (rows - decoding - sum(found.limits)) // 2
    if sum(prompts) + len(found.ready) + sum(found.limits) <= rows:
        assert found.num_prefill_rows == sum(prompts), "rows were left unused"


def roster(pages: int, waiting: Seq[Sequence], running: int = 8) -> Roster:
    made = Roster(PagePool(pages, PAGE), BLOCK, running)
    made.add(waiting)
    return made


def test_first_come_first_served() -> None:
    made = roster(10, [sequence(0, 30), sequence(1, 20), sequence(2, 3)])
    made.admit()
    assert [s.arrival for s in made.running] == [0]
    assert [s.arrival for s in made.waiting] == [1, 2], "the third one fits, but the second one was here before"
    made.check_integrity()


def test_only_so_many_run() -> None:
    made = roster(50, [sequence(i, 3) for i in range(5)], running=2)
    made.admit()
    assert len(made.running) == 2


def test_the_latest_steps_back() -> None:
    made = roster(5, [sequence(0, 7), sequence(1, 7), sequence(2, 6)])
    made.admit()
    made.admit()
    assert len(made.running) == 2, "a page is left for each that runs"
    for s in made.running:
        s.token_ids.append(1)
        s.num_computed = s.num_prompt
    assert made.make_room()
    assert [s.arrival for s in made.running] == [0]
    assert [s.arrival for s in made.waiting] == [1, 2]
    assert (made.waiting[0].num_computed, made.waiting[0].preemptions) == (0, 1)
    made.check_integrity()


def test_retired_ones_are_forgotten() -> None:
    made = roster(6, [sequence(0, 7), sequence(1, 7)])
    made.admit()
    for s in list(made):
        assert s.request.request_id in made
        made.retire(s, FinishReason.ABORT)
        assert s.request.request_id not in made
    assert len(made) == 0
    assert made.pool.stats().used == 0
    made.check_integrity()


def test_integrity_notices_disorder() -> None:
    made = roster(20, [sequence(0, 7), sequence(1, 7)])
    made.admit()
    made.running.reverse()
    with pytest.raises(AssertionError, match="out of order"):
        made.check_integrity()
