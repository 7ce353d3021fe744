"""Tests that the slots of an engine rotate among users, and that none is lost when a request leaves at any point."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import ExitStack, aclosing

import pytest

from agent_kernel.engines.fair_queue import FairQueue, Ticket
from tests.turns import CancelledAt


async def call(queue: FairQueue, user: str, number: int, done: list[tuple[str, int]], steps: int = 1) -> None:
    """Make one model call that takes ``steps`` iterations of the event loop."""
    with queue.ticket(user, number) as ticket:
        async with aclosing(ticket.positions()) as positions:
            async for position in positions:
                assert position >= 1
        assert ticket.served
        done.append((user, number))
        for _ in range(steps):
            await asyncio.sleep(0)


async def serve_calls(queue: FairQueue, asked: list[tuple[str, int]], steps: int = 1) -> list[tuple[str, int]]:
    """Queue all calls before the first one ends. Return the order in which they were served."""
    done: list[tuple[str, int]] = []
    await asyncio.gather(*(call(queue, user, number, done, steps) for user, number in asked))
    return done


async def test_without_a_bound_nobody_waits() -> None:
    queue = FairQueue(0)
    with queue.ticket("a", 1) as first, queue.ticket("a", 2) as second:
        assert first.served
        assert second.served
        assert [position async for position in second.positions()] == []


@pytest.mark.parametrize("slots", [1, 2, 4])
async def test_one_who_asks_much_delays_another_by_at_most_one_call_in_each_slot(slots: int) -> None:
    done = await serve_calls(FairQueue(slots), [*(("many", number) for number in range(50)), ("one", 50)])
    assert done.index(("one", 50)) < 2 * slots  # those that were served when it came, and one less that ends at once


async def test_users_take_turns() -> None:
    asked = [(user, 10 * place + number) for place, user in enumerate("abc") for number in range(3)]
    done = await serve_calls(FairQueue(1), asked)
    assert "".join(user for user, _ in done) == "abc" * 3


async def test_calls_of_a_user_are_served_in_the_order_of_their_turns_whoever_came_first() -> None:
    queue, done = FairQueue(1), list[tuple[str, int]]()
    first = asyncio.create_task(call(queue, "a", 1, done, steps=5))
    await asyncio.sleep(0)
    rest = [asyncio.create_task(call(queue, "a", number, done)) for number in (4, 2, 3)]
    await asyncio.gather(first, *rest)
    assert [number for _, number in done] == [1, 2, 3, 4]


async def test_who_holds_fewer_slots_comes_first() -> None:
    queue = FairQueue(3)
    with queue.ticket("a", 1), queue.ticket("a", 2), queue.ticket("b", 3) as leaving:
        assert leaving.served
        with queue.ticket("a", 4) as waits, queue.ticket("b", 5) as next_one:
            assert (waits.position, next_one.position) == (2, 1)


async def test_a_ticket_hears_how_many_stand_before_it_until_it_is_served() -> None:
    queue = FairQueue(1)
    with ExitStack() as served, ExitStack() as gives_up:
        served.enter_context(queue.ticket("a", 1))
        gives_up.enter_context(queue.ticket("b", 2))
        with queue.ticket("c", 3) as ticket:
            positions = ticket.positions()
            assert await anext(positions) == 2
            gives_up.close()
            assert await anext(positions) == 1
            served.close()
            assert [position async for position in positions] == []


async def test_far_back_in_a_long_line_not_every_step_is_told() -> None:
    queue = FairQueue(1)
    tickets = [Ticket(FairQueue(1), "x", 0)]
    ticket = tickets[0]
    told = []
    for position in range(200, 0, -1):
        ticket.changed.clear()
        ticket.set_position(position)
        told += [ticket.position] if ticket.changed.is_set() else []
    assert told[:3] == [200, 160, 128]
    assert told[-10:] == list(range(10, 0, -1))
    assert queue.waiting == 0


@pytest.mark.parametrize("slots", [1, 2])
async def test_no_slot_is_lost_wherever_a_call_is_cancelled(slots: int) -> None:
    reached = set()
    for n in range(1, 12):
        queue, done = FairQueue(slots), list[tuple[str, int]]()
        others = [asyncio.create_task(call(queue, "ab"[i % 2], i, done, steps=2)) for i in range(4)]
        stopped = CancelledAt(call(queue, "c", 9, done, steps=2), n)
        task = asyncio.create_task(stopped.run())
        await asyncio.wait([task, *others])
        reached.add(task.cancelled())
        assert len(done) - done.count(("c", 9)) == 4
        assert (queue.waiting, queue.in_use) == (0, 0)
        assert await serve_calls(queue, [("d", 10)]) == [("d", 10)]
    assert reached == {True, False}


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_comes_and_goes_nobody_starves_and_all_slots_come_back(seed: int) -> None:
    chance = random.Random(seed)
    slots = chance.randint(1, 4)
    queue, done, held = FairQueue(slots), list[tuple[str, int]](), Counter[str]()

    async def one(user: str, number: int) -> None:
        with queue.ticket(user, number) as ticket:
            async for _ in ticket.positions():
                await asyncio.sleep(0)
            held[user] += 1
            assert held.total() <= slots
            try:
                for _ in range(chance.randint(0, 4)):
                    await asyncio.sleep(0)
            finally:
                held[user] -= 1
            done.append((user, number))

    tasks = []
    for number in range(60):
        tasks.append(asyncio.create_task(one(chance.choice("aaaaabcd"), number)))
        if chance.random() < 0.3:
            chance.choice(tasks).cancel()
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    await asyncio.wait(tasks)
    assert len(done) == sum(not task.cancelled() for task in tasks)
    assert (queue.waiting, queue.in_use) == (0, 0)


@pytest.mark.parametrize("users", [2, 5, 20])
async def test_between_two_calls_of_a_user_who_waits_every_other_is_served_at_most_once(users: int) -> None:
    """The fair share of one slot: with n users waiting each gets every n-th call, however much one asks."""
    chance = random.Random(users)
    asked = [(f"u{user}", 0) for user in range(users) for _ in range(chance.randint(5, 40))]
    chance.shuffle(asked)
    done = await serve_calls(FairQueue(1), [(user, number) for number, (user, _) in enumerate(asked)])
    left = Counter(user for user, _ in asked)
    since: dict[str, Counter[str]] = {user: Counter() for user in left}
    for user, _ in done:
        left[user] -= 1
        since[user] = Counter()
        for other, passed in since.items():
            if other != user and left[other]:
                passed[user] += 1
                assert passed[user] <= 1


async def test_a_position_counts_the_calls_that_wait_in_the_engine_too() -> None:
    queue = FairQueue(2)
    with queue.ticket("a", 1), queue.ticket("b", 2) as second, queue.ticket("c", 3) as third:
        assert (third.position, queue.waiting) == (1, 1)
        second.set_waits_in_engine(True)  # the engine decodes one call at a time
        assert (third.position, queue.waiting) == (2, 2)
        second.set_waits_in_engine(False)
        assert (third.position, queue.waiting) == (1, 1)


async def test_a_call_that_leaves_while_it_waits_in_the_engine_is_not_counted_any_more() -> None:
    queue = FairQueue(1)
    with ExitStack() as first:
        first.enter_context(queue.ticket("a", 1)).set_waits_in_engine(True)
        with queue.ticket("b", 2) as second:
            assert second.position == 2
            first.close()
            assert (second.served, queue.waiting) == (True, 0)
