"""Tests budgets of servers that share a store: spending on one server counts on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_kernel.core.errors import StoreError
from agent_kernel.sessions.log.message_bus import SharedValue
from jupyter_ext.quotas.spending_rows import QuotaAccount, SharedSpending
from jupyter_ext.quotas.token_spending import TokenSpending
from jupyter_ext.turns.server_link import ServerLink
from tests.jupyter_ext.quotas.test_limits import Clock
from tests.sessions.log.memory_bus import MemoryBus

ADA, TOKEN, BOB = QuotaAccount("ada"), QuotaAccount("ada", "secret-name"), QuotaAccount("bob")


class WeakBus(MemoryBus):
    is_away = False

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        if self.is_away:
            raise StoreError("the database is away")
        return super().swap_value(namespace, name, expect, value, keep_s)


@asynccontextmanager
async def servers(bus: MemoryBus, clock: Clock, number: int = 2) -> AsyncIterator[list[TokenSpending]]:
    links = [ServerLink(bus) for _ in range(number)]
    made = [TokenSpending(SharedSpending(link), clock) for link in links]
    try:
        yield made
    finally:
        for spending in made:
            await spending.aclose()
        for link in links:
            await link.aclose()


async def test_what_is_spent_on_several_servers_at_once_counts_on_all_of_them() -> None:
    async with servers(MemoryBus(), Clock(), 3) as spending:
        for number in range(60):
            spending[number % 3].charge([ADA, TOKEN] if number % 2 else [ADA, BOB], 1)
        for one in spending:
            await one.aclose()
        for one in spending:
            spent = [(await one.spent_by(account)).hour for account in (ADA, TOKEN, BOB)]
            assert spent == [60, 30, 30]


async def test_the_hour_and_the_day_end_for_shared_budgets_too() -> None:
    clock = Clock()
    async with servers(MemoryBus(), clock) as (one, other):
        one.charge([ADA], 5)
        await one.aclose()
        clock.now += 2 * 3600
        other.charge([ADA], 7)
        await other.aclose()
        spent = await one.spent_by(ADA)
        assert (spent.hour, spent.day) == (7, 12)
        assert await other.seconds_until_below(ADA, 60, 7) > 0
        clock.now += 24 * 3600
        assert (await one.spent_by(ADA)).day == 0


async def test_tokens_are_counted_once_when_the_database_was_away() -> None:
    bus = WeakBus()
    async with servers(bus, Clock()) as (one, other):
        bus.is_away = True
        one.charge([ADA, BOB], 3)
        await one.aclose()
        assert (await one.spent_by(ADA)).hour == 3
        assert (await other.spent_by(ADA)).hour == 0
        bus.is_away = False
        one.charge([ADA], 4)
        await one.aclose()
        assert [(await other.spent_by(account)).hour for account in (ADA, BOB)] == [7, 3]


async def test_the_name_of_a_token_is_not_in_the_database() -> None:
    bus = MemoryBus()
    async with servers(bus, Clock()) as (one, _):
        one.charge([TOKEN], 1)
        await one.aclose()
    assert not any("secret-name" in str(place) for place in bus._values)
