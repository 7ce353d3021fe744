"""Tests that slots are given out fairly, and that each waiting request is told its position."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import EngineBusy
from agent_kernel.engines.local.decoding.request_queue import Admission


class Line:
    """Requests that wait for one admission queue, and the order in which they were admitted."""

    def __init__(self, capacity: int, waiting: int = 256) -> None:
        self.admission = Admission(capacity, waiting)
        self.admitted: list[str] = []
        self.told: dict[str, list[int]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def come(self, name: str, session: str = "", size: int = 1) -> None:
        self.told[name] = []
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._request(name, session or name, size))
        await let_tasks_run()

    async def _request(self, name: str, session: str, size: int) -> None:
        async with self.admission.place(session, self.told[name].append, size):
            self.admitted.append(name)
            await self._ends[name].wait()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await let_tasks_run()

    async def leave(self, name: str) -> None:
        self.tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[name]
        await let_tasks_run()

    async def close(self) -> None:
        for name in list(self.tasks):
            await self.leave(name)


async def let_tasks_run() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_with_room_nobody_waits_and_nobody_is_told_anything() -> None:
    line = Line(2)
    await line.come("a")
    await line.come("b")

    assert line.admitted == ["a", "b"]
    assert line.told == {"a": [], "b": []}
    await line.close()


async def test_a_position_is_told_at_once_and_whenever_it_changes() -> None:
    line = Line(1)
    for name in "abcd":
        await line.come(name)
    assert (line.told["b"], line.told["c"], line.told["d"]) == ([1], [2], [3])

    await line.end("a")

    assert line.admitted == ["a", "b"]
    assert (line.told["b"], line.told["c"], line.told["d"]) == ([1], [2, 1], [3, 2])
    await line.close()


async def test_one_session_with_many_requests_does_not_starve_another() -> None:
    line = Line(2)
    many = [f"many{number}" for number in range(20)]
    for name in many:
        await line.come(name, session="greedy")
    await line.come("other1", session="other")
    await line.come("other2", session="other")
    assert line.told["other1"] == [1]

    await line.end("many0", "many1")

    assert line.admitted == ["many0", "many1", "other1", "many2"]
    await line.end("other1", "many2")
    assert line.admitted[4:] == ["other2", "many3"]
    await line.close()


async def test_sessions_that_wait_take_turns() -> None:
    line = Line(1)
    await line.come("first")
    for name in ("a1", "a2", "b1", "b2", "c1"):
        await line.come(name, session=name[0])
    order: Sequence[str] = ("first", "a1", "b1", "c1", "a2", "b2")
    for name in order:
        await line.end(name)

    assert line.admitted == list(order)
    await line.close()


async def test_a_waiter_that_leaves_frees_its_place_at_once() -> None:
    line = Line(1, waiting=2)
    for name in "abc":
        await line.come(name)

    await line.leave("b")

    assert line.told["c"] == [2, 1]
    assert line.admission.waiting == 1
    await line.come("d")
    assert line.told["d"] == [2]
    await line.close()


async def test_a_full_queue_refuses_with_numbers_and_keeps_the_others() -> None:
    line = Line(1, waiting=1)
    await line.come("a")
    await line.come("b")
    with pytest.raises(EngineBusy, match="1 requests wait") as raised:
        async with line.admission.place("c", lambda position: None):
            pass

    assert raised.value.hint
    assert raised.value.details == {"waiting": 1, "running": 1, "retry_after_s": 2}
    await line.end("a")
    assert line.admitted == ["a", "b"]
    await line.close()


async def test_a_large_request_is_not_passed_by_small_ones_behind_it() -> None:
    line = Line(10)
    await line.come("running", size=6)
    await line.come("large", size=8)
    await line.come("small", size=1)
    assert line.admitted == ["running"]

    await line.end("running")

    assert line.admitted == ["running", "large", "small"]
    await line.close()


async def test_a_request_cancelled_in_the_moment_it_is_let_in_gives_its_place_back() -> None:
    line = Line(1)
    await line.come("a")
    await line.come("b")
    line._ends["a"].set()
    while line.admission.waiting:
        await asyncio.sleep(0)
    line.tasks["b"].cancel()
    await let_tasks_run()

    assert line.admission.taken == 0
    await line.close()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.sampled_from(["come", "end", "leave"])), max_size=40
    )
)
async def test_places_are_never_lost_nor_given_twice(moves: list[tuple[str, int, str]]) -> None:
    line = Line(6)
    for number, (session, size, move) in enumerate(moves):
        if move == "come":
            await line.come(f"{session}{number}", session=session, size=size)
        elif line.tasks:
            name = list(line.tasks)[size % len(line.tasks)]
            await (line.end(name) if move == "end" else line.leave(name))
        assert 0 <= line.admission.taken <= 6
    await line.close()

    assert (line.admission.taken, line.admission.waiting) == (0, 0)
