"""Turns at once, counted by one server alone and by servers that share a store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.sessions.log.message_bus import EventCount
from jupyter_ext.quotas import turn_slots
from jupyter_ext.quotas.spending_rows import QuotaAccount
from jupyter_ext.quotas.turn_slots import LocalSlots, SharedSlots, TurnSlots
from jupyter_ext.turns.server_link import ServerLink
from tests.sessions.log.memory_bus import MemoryBus, WatchedBus

ADA, TOKEN, BOB = QuotaAccount("ada"), QuotaAccount("ada", "secret-name"), QuotaAccount("bob")
ACCOUNTS = {"ada": ADA, "token": TOKEN, "bob": BOB}


@asynccontextmanager
async def servers(bus: MemoryBus, number: int = 2, renew_s: float = 60.0) -> AsyncIterator[list[SharedSlots]]:
    links = [ServerLink(bus) for _ in range(number)]
    made = [SharedSlots(link, renew_s) for link in links]
    yield made
    for slots in made:
        await slots.aclose()
    for link in links:
        await link.aclose()


def limits(**given: int) -> dict[QuotaAccount, int]:
    return {ACCOUNTS[name]: limit for name, limit in given.items()}


async def take(slots: TurnSlots, turn: str, **given: int) -> bool:
    """Whether the turn may start; ``ada=3`` is the limit of Ada, ``token`` that of her token."""
    counts = await slots.take(turn, limits(**given))
    return not any(count.wait_s for count in counts.values())


async def number(slots: TurnSlots, **given: int) -> list[int]:
    return [count.number for count in (await slots.read(limits(**given))).values()]


async def until_number(slots: TurnSlots, wanted: int, **given: int) -> None:
    """A slot whose renewal comes late on a busy machine is counted again, so the number is right in the end."""
    end = time.monotonic() + 20
    while await number(slots, **given) != [wanted]:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_the_limit_is_that_of_all_servers_together() -> None:
    async with servers(MemoryBus(), 3) as slots:
        names = [f"turn-{n}" for n in range(12)]
        took = await asyncio.gather(*(take(slots[n % 3], name, ada=4) for n, name in enumerate(names)))
        assert sum(took) == 4
        assert await take(slots[0], "of bob", bob=1)
        assert [await number(one, ada=4) for one in slots] == [[4]] * 3


async def test_a_turn_that_ends_makes_room_on_all_servers() -> None:
    async with servers(MemoryBus()) as (one, other):
        assert await take(one, "first", ada=1)
        assert not await take(other, "second", ada=1)
        one.give_back("first", {ADA: 1})
        await one.aclose()
        assert await take(other, "second", ada=1)


async def test_a_turn_that_one_account_may_not_have_takes_no_slot_of_another() -> None:
    async with servers(MemoryBus()) as (one, other):
        assert await take(one, "first", ada=5, token=1)
        assert not await take(other, "second", ada=5, token=1)
        assert await number(one, ada=5, token=1) == await number(other, ada=5, token=1) == [1, 1]


async def test_a_turn_that_outlasts_its_lease_keeps_its_slot_and_that_of_a_killed_server_becomes_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_slots, "LEASE_S", 0.5)
    bus = MemoryBus()
    async with servers(bus, 2, renew_s=0.05) as (one, other), servers(bus, 1) as (killed,):
        assert await take(one, "runs", ada=9)
        assert await take(other, "runs too", ada=9)
        assert await take(killed, "lost", ada=9)
        await asyncio.sleep(0.6)
        await until_number(one, 2, ada=9)


async def test_while_the_database_is_away_no_turn_begins_and_slots_that_ran_out_are_counted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_slots, "LEASE_S", 0.3)
    bus = WatchedBus()
    async with servers(bus, 1, renew_s=0.05) as (one,), servers(bus, 1) as (other,):
        assert await take(one, "runs", ada=1)
        bus.is_away = True
        with pytest.raises(StoreError):
            await take(other, "second", ada=1)
        await asyncio.sleep(0.35)
        bus.is_away = False
        await until_number(other, 1, ada=1)


async def test_without_a_limit_the_database_is_never_asked_and_the_turns_are_shown() -> None:
    bus = WatchedBus()
    async with servers(bus) as (one, _):
        assert await take(one, "a", ada=0)
        assert await take(one, "b", ada=0)
        assert await number(one, ada=0) == [2]
        one.give_back("a", {ADA: 0})
        assert await number(one, ada=0) == [1]
        assert bus.calls == 0


async def test_a_user_whose_turns_all_run_here_is_refused_without_asking_the_database() -> None:
    bus = WatchedBus()
    async with servers(bus) as (one, _):
        assert await take(one, "a", ada=1)
        asked = bus.calls
        assert not await take(one, "b", ada=1)
        assert one.peek({ADA: 1})[ADA] == EventCount(1, turn_slots.SOON_S)
        assert bus.calls == asked


async def test_one_server_counts_in_memory_and_giving_back_twice_frees_one_slot() -> None:
    slots = LocalSlots()
    assert await take(slots, "a", ada=2, token=1)
    assert not await take(slots, "b", ada=2, token=1)
    assert await take(slots, "c", ada=2)
    for _ in range(2):
        slots.give_back("a", limits(ada=2, token=1))
    assert await number(slots, ada=2, token=1) == [1, 0]
