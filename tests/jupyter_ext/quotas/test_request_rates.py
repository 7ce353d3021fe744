"""Tests the turns per minute, counted by one server alone and by servers that share a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent_kernel.core.errors import StoreError
from jupyter_ext.quotas.request_rates import LocalRates, RequestRates, SharedRates
from jupyter_ext.quotas.spending_rows import QuotaAccount
from jupyter_ext.turns.server_link import ServerLink
from tests.sessions.log.memory_bus import MemoryBus, WatchedBus

ADA, TOKEN, BOB = QuotaAccount("ada"), QuotaAccount("ada", "secret-name"), QuotaAccount("bob")


@asynccontextmanager
async def servers(bus: MemoryBus, number: int = 2) -> AsyncIterator[list[SharedRates]]:
    links = [ServerLink(bus) for _ in range(number)]
    made = [SharedRates(link) for link in links]
    yield made
    for rates in made:
        await rates.aclose()
    for link in links:
        await link.aclose()


async def start(rates: RequestRates, name: str, **limits: int) -> bool:
    """Return True if a turn may start. ``ada=3`` is the limit of Ada, ``token`` that of her token."""
    accounts = {"ada": ADA, "token": TOKEN, "bob": BOB}
    counts = await rates.count(name, {accounts[account]: limit for account, limit in limits.items()})
    return not any(count.wait_s for count in counts.values())


async def test_a_limit_is_that_of_all_servers_together() -> None:
    async with servers(MemoryBus(), 3) as rates:
        names = [f"start-{number}" for number in range(30)]
        began = await asyncio.gather(*(start(rates[n % 3], name, ada=10) for n, name in enumerate(names)))
        assert sum(began) == 10
        assert await start(rates[0], "of bob", bob=1)
        for one in rates:
            count = (await one.read({ADA: 10}))[ADA]
            assert count.number == 10
            assert 50 < count.wait_s <= 60


async def test_a_start_that_one_account_may_not_make_counts_for_none() -> None:
    async with servers(MemoryBus()) as (one, other):
        assert await start(one, "first", ada=5, token=1)
        assert not await start(other, "second", ada=5, token=1)
        assert [(await one.read({account: 5}))[account].number for account in (ADA, TOKEN)] == [1, 1]


async def test_what_was_taken_back_makes_room_on_all_servers() -> None:
    async with servers(MemoryBus()) as (one, other):
        assert await start(one, "first", ada=1)
        assert not await start(other, "second", ada=1)
        one.take_back("first", {ADA: 1})
        await one.aclose()
        assert await start(other, "third", ada=1)


async def test_a_start_asks_the_database_once_and_without_a_limit_never() -> None:
    bus = WatchedBus()
    async with servers(bus) as (one, _):
        await start(one, "first", ada=0, token=0)
        assert bus.calls == 0
        assert (await one.read({ADA: 0}))[ADA].number == 1
        one.peek({ADA: 2, TOKEN: 2})
        await start(one, "second", ada=2, token=2)
        assert bus.calls == 1


async def test_an_account_that_was_refused_is_refused_early_for_a_moment() -> None:
    async with servers(WatchedBus()) as (one, other):
        await start(one, "first", ada=1)
        assert not one.peek({ADA: 1})
        await start(other, "second", ada=1)
        assert 50 < other.peek({ADA: 1})[ADA].wait_s <= 60
        assert not other.peek({BOB: 1})


async def test_without_the_database_no_turn_starts_and_the_error_says_what_to_do() -> None:
    bus = WatchedBus()
    async with servers(bus) as (one, _):
        bus.is_away = True
        with pytest.raises(StoreError) as error:
            await start(one, "first", ada=1)
        assert error.value.hint
        bus.is_away = False
        assert await start(one, "first", ada=1)


async def test_the_name_of_a_token_is_not_in_the_database() -> None:
    bus = MemoryBus()
    async with servers(bus) as (one, _):
        await start(one, "first", token=1)
    assert bus._counted
    assert "secret-name" not in str(bus._counted)


async def test_a_server_alone_forgets_starts_after_a_minute() -> None:
    now = [0.0]
    rates = LocalRates(lambda: now[0])
    assert await start(rates, "first", ada=1)
    assert not await start(rates, "second", ada=1)
    rates.take_back("first", {ADA: 1})
    assert await start(rates, "third", ada=1)
    now[0] = 60.0
    assert await start(rates, "fourth", ada=1)
