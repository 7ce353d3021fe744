"""Tests the engine of a session on servers that share a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.log.message_bus import SharedValue
from jupyter_ext.turns.chosen_engines import ADDRESS_ELSEWHERE, MAX_CACHED, EngineChoices
from jupyter_ext.turns.server_link import ServerLink
from tests.sessions.log.memory_bus import MemoryBus

CHAT, URL = SessionKey("ann", "chat"), "https://ann:secret@models.example/v1#big"


class WeakBus(MemoryBus):
    is_away = False

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        if self.is_away:
            raise StoreError("the database is away", hint="Try again.")
        return super().get_value(namespace, name)


@pytest.fixture
def bus() -> WeakBus:
    return WeakBus()


@pytest.fixture
async def servers(bus: WeakBus) -> AsyncIterator[list[EngineChoices]]:
    links = [ServerLink(bus) for _ in range(3)]
    yield [EngineChoices(None, link) for link in links]
    for link in links:
        await link.aclose()


async def test_an_engine_that_is_chosen_on_one_server_is_that_of_all(servers: list[EngineChoices]) -> None:
    one, two, three = servers
    assert await two.get(CHAT) == ""
    await one.set(CHAT, "near")
    assert [await server.get(CHAT) for server in servers] == ["near"] * 3
    await two.set(CHAT, "far")
    assert [await server.get(CHAT) for server in servers] == ["far"] * 3
    await three.set(CHAT, "")
    assert [await server.get(CHAT) for server in servers] == [""] * 3


async def test_choices_at_the_same_time_end_as_one_of_them_on_all_servers(servers: list[EngineChoices]) -> None:
    names = [f"engine-{number}" for number in range(30)]
    sessions = [SessionKey("ann", f"s{number}") for number in range(30)]
    await asyncio.gather(
        *(servers[number % 3].set(CHAT, name) for number, name in enumerate(names)),
        *(servers[number % 3].set(key, key.id) for number, key in enumerate(sessions)),
    )
    [last] = {await server.get(CHAT) for server in servers}
    assert last in names
    assert [await servers[0].get(key) for key in sessions] == [key.id for key in sessions]


async def test_users_and_sessions_have_choices_of_their_own(servers: list[EngineChoices]) -> None:
    one, two, _ = servers
    await one.set(CHAT, "near")
    assert await two.get(SessionKey("bob", "chat")) == ""
    assert await two.get(SessionKey("ann", "other")) == ""


async def test_an_address_is_known_only_to_its_server_and_the_others_say_so(
    servers: list[EngineChoices], bus: WeakBus
) -> None:
    one, two, _ = servers
    await one.set(CHAT, URL)
    assert await one.get(CHAT) == URL
    assert await two.get(CHAT) == ADDRESS_ELSEWHERE
    assert "secret" not in str(bus._values)
    await two.set(CHAT, "near")
    assert await one.get(CHAT) == "near", "the later choice replaces the address"


async def test_the_choice_of_a_private_session_stays_on_its_server(servers: list[EngineChoices], bus: WeakBus) -> None:
    one, two, _ = servers
    private = SessionKey("ann", "private:chat")
    await one.set(private, "near")
    assert (await one.get(private), await two.get(private)) == ("near", "")
    assert not bus._values


async def test_without_the_database_no_other_engine_is_used(servers: list[EngineChoices], bus: WeakBus) -> None:
    await servers[0].set(CHAT, "near")
    bus.is_away = True
    with pytest.raises(StoreError) as error:
        await servers[0].get(CHAT)
    assert error.value.hint
    with pytest.raises(StoreError):
        await servers[0].set(CHAT, "far")
    bus.is_away = False
    assert await servers[1].get(CHAT) == "near"


async def test_a_server_alone_keeps_choices_in_its_directory(tmp_path: Path) -> None:
    await EngineChoices(tmp_path).set(CHAT, "near")
    await EngineChoices(tmp_path).set(SessionKey("ann", "other"), URL)
    again = EngineChoices(tmp_path)
    assert (await again.get(CHAT), await again.get(SessionKey("ann", "other"))) == ("near", "")


async def test_sessions_without_a_choice_take_no_memory(tmp_path: Path) -> None:
    """Every session that ran a turn had an entry as long as the server ran."""
    choices = EngineChoices(tmp_path)
    await choices.set(CHAT, "near")
    await choices.set(SessionKey("ann", "private:chosen"), "far")
    for number in range(MAX_CACHED + 5):
        assert await choices.get(SessionKey("ann", f"private:{number}")) == ""
        assert await choices.get(SessionKey("ann", f"s{number}")) == ""
    assert len(choices._in_memory) == 1
    assert len(choices._stored) == MAX_CACHED
    assert await choices.get(CHAT) == "near", "it is read again"
    assert await choices.get(SessionKey("ann", "private:chosen")) == "far"


async def test_the_last_choice_of_a_session_applies_wherever_it_is_kept(tmp_path: Path) -> None:
    choices = EngineChoices(tmp_path)
    for engine in ("near", URL, "far", URL, ""):
        await choices.set(CHAT, engine)
        assert await choices.get(CHAT) == engine
        assert await EngineChoices(tmp_path).get(CHAT) == ("" if engine == URL else engine)
    assert not choices._in_memory
