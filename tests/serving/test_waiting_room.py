"""Priorities, and fair shares within each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dspark.core import SamplingParams
from dspark.serving.ticket import Mailbox, Ticket
from dspark.serving.waiting_room import WaitingRoom


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def ticket(loop: asyncio.AbstractEventLoop, client: str, name: str, priority: int = 0, tokens: int = 10) -> Ticket:
    params = SamplingParams(max_tokens=tokens)
    return Ticket(name=name, prompt_ids=(1,), params=params, mailbox=Mailbox(loop, 1), client=client, priority=priority)


def order(room: WaitingRoom) -> list[str]:
    return [room.pop().name for _ in range(len(room))]


def test_one_client_is_served_in_order(loop: asyncio.AbstractEventLoop) -> None:
    room = WaitingRoom(9)
    room.add([ticket(loop, "a", str(i)) for i in range(5)])
    assert order(room) == list("01234")


def test_a_crowd_of_one_client_does_not_hold_up_another(loop: asyncio.AbstractEventLoop) -> None:
    room = WaitingRoom(99)
    room.add([ticket(loop, "a", f"a{i}") for i in range(20)])
    room.pop()
    room.add([ticket(loop, "b", "b0"), ticket(loop, "b", "b1")])
    found = order(room)
    assert found.index("b0") <= 1
    assert found.index("b1") <= 3


def test_long_requests_count_for_more(loop: asyncio.AbstractEventLoop) -> None:
    room = WaitingRoom(99)
    for i in range(4):
        room.add([ticket(loop, "long", f"l{i}", tokens=400), ticket(loop, "short", f"s{i}", tokens=40)])
    assert order(room)[:6] == ["l0", "s0", "s1", "s2", "s3", "l1"]


def test_priorities_go_first(loop: asyncio.AbstractEventLoop) -> None:
    room = WaitingRoom(9)
    room.add([ticket(loop, "a", "late", 3), ticket(loop, "a", "normal"), ticket(loop, "b", "soon", -1)])
    assert order(room) == ["soon", "normal", "late"]


def test_it_is_bounded_and_lets_go(loop: asyncio.AbstractEventLoop) -> None:
    room = WaitingRoom(2)
    assert room.fits(5), "an empty room takes a large request"
    first, second = ticket(loop, "a", "0"), ticket(loop, "a", "1")
    room.add([first, second])
    assert not room.fits(1)
    assert room.remove(first)
    assert not room.remove(first)
    assert room.fits(1)
    assert order(room) == ["1"]
    assert room.first() is None
