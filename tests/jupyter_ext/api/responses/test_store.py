"""Tests what is stored of responses, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.core.session import new_id
from agent_kernel.sessions.log.message_bus import SharedValue
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from jupyter_ext.api.responses.shared_responses import SharedResponses
from jupyter_ext.api.responses.store import (
    KEEP_S,
    DatabaseResponses,
    ResponseOwner,
    ResponseRows,
    ResponseStore,
    StoredResponse,
)
from jupyter_ext.turns.server_link import ServerLink
from tests.narrowing import not_none
from tests.sessions.log.memory_bus import MemoryBus

Make: TypeAlias = Callable[..., ResponseStore]
ME, OTHER = ResponseOwner("ns", "user"), ResponseOwner("ns", "kernel 1")
ITEM = {"id": "msg_1", "type": "message", "role": "user", "content": []}


def response(owner: ResponseOwner = ME, *, session: str = "s1", created: float | None = None) -> StoredResponse:
    facts = ResponseFacts(
        response_id("ns", new_id("turn")), "m", session, created=created or time.time(), echo={"store": True}
    )
    return StoredResponse(owner, "turn-1", facts, [ITEM])


@pytest.fixture(params=["file", "memory", "shared"])
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[..., ResponseStore]]:
    """A function that makes an empty store with these limits."""
    made: list[ResponseStore] = []
    link = ServerLink(MemoryBus())

    def make(**limits: int) -> ResponseStore:
        if request.param == "shared":
            rows: ResponseRows = SharedResponses(link, parts=1, **limits)
        else:
            rows = DatabaseResponses(tmp_path / "responses.db" if request.param == "file" else None, **limits)
        made.append(ResponseStore(rows))
        return made[-1]

    yield make
    for store in made:
        await store.aclose()
    await link.aclose()


async def test_one_is_found_by_its_owner_only(make_store: Make) -> None:
    store, made = make_store(), response()
    await store.add(made)
    assert await store.get(ME, made.id) == made
    assert await store.get(OTHER, made.id) is None
    assert await store.get(ResponseOwner("other", "user"), made.id) is None
    assert await store.delete(OTHER, made.id) is False
    assert await store.delete(ME, made.id) is True
    assert await store.get(ME, made.id) is None


async def test_its_end_and_its_stream_are_there_again(make_store: Make) -> None:
    store, made = make_store(), response()
    await store.add(made)
    assert await store.frames(ME, made.id) == []
    frames = [b"event: a\ndata: 1\n\n", b"event: b\ndata: 2\n\n"]
    await store.finish(made, {"status": "completed", "output": [{"id": "msg_2"}]}, frames)
    found = not_none(await store.get(ME, made.id))
    assert (found.body or {})["status"] == "completed"
    assert found.items(["msg_1", "msg_2", "msg_3"]) == {"msg_1": ITEM, "msg_2": {"id": "msg_2"}}
    assert await store.frames(ME, made.id) == frames
    assert await store.frames(OTHER, made.id) == []


async def test_one_that_was_deleted_meanwhile_does_not_come_back(make_store: Make) -> None:
    store, made = make_store(), response()
    await store.add(made)
    await store.delete(ME, made.id)
    await store.finish(made, {"status": "completed", "output": []}, [])
    assert await store.get(ME, made.id) is None


async def test_the_oldest_go_where_there_are_too_many(make_store: Make) -> None:
    store = make_store(most=3)
    now = time.time()
    made = [response(created=now - 10 + n) for n in range(5)]
    elsewhere = response(ResponseOwner("other", "user"), created=now - 100)
    for one in [elsewhere, *made]:
        await store.add(one)
    assert [await store.get(ME, one.id) is not None for one in made] == [False, False, True, True, True]
    assert await store.get(elsewhere.owner, elsewhere.id) is not None


async def test_large_ones_make_room(make_store: Make) -> None:
    store = make_store(most_bytes=60_000)
    first, second = response(created=time.time() - 5), response()
    await store.add(first)
    await store.finish(first, {"text": "x" * 50_000, "output": []}, [])
    await store.add(replace(second, input=[ITEM | {"text": "x" * 20_000}]))
    assert await store.get(ME, first.id) is None
    assert await store.get(ME, second.id) is not None


async def test_one_that_ends_again_counts_once(make_store: Make) -> None:
    store = make_store(most_bytes=120_000)
    first = response(created=time.time() - 5)
    await store.add(first)
    for _ in range(5):
        await store.finish(first, {"text": "x" * 50_000, "output": []}, [])
    await store.add(response())
    assert await store.get(ME, first.id) is not None


async def test_what_was_told_is_not_made_again(make_store: Make) -> None:
    store, made = make_store(), response()
    await store.add(made)
    await store.finish(made, {"n": 1, "output": []}, [b"made\n\n"], again=True)
    await store.finish(made, {"n": 2, "output": []}, [b"told\n\n"])
    await store.finish(made, {"n": 3, "output": []}, [b"made\n\n"], again=True)
    found = not_none(await store.get(ME, made.id))
    assert (found.body or {})["n"] == 2
    assert await store.frames(ME, made.id) == [b"told\n\n"]


async def test_whether_a_session_has_any(make_store: Make) -> None:
    store, made = make_store(), response()
    await store.add(made)
    assert await store.has_response(made.key)
    assert not await store.has_response(response(session="s2").key)
    assert not await store.has_response(response(ResponseOwner("other", "user")).key)
    await store.delete(ME, made.id)
    assert not await store.has_response(made.key)


async def test_old_ones_go(make_store: Make) -> None:
    store, old = make_store(), response(created=time.time() - KEEP_S - 1)
    await store.add(old)
    await store.add(response())
    assert await store.get(ME, old.id) is None


async def test_with_a_session_go_all_of_its_responses(make_store: Make) -> None:
    store = make_store()
    gone, stays = response(), response(session="s2")
    for one in (gone, stays):
        await store.add(one)
    await store.forget(gone.key)
    assert await store.get(ME, gone.id) is None
    assert await store.get(ME, stays.id) is not None


async def test_they_outlive_the_process_but_for_those_of_private_sessions(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    store, kept = ResponseStore(DatabaseResponses(path)), response()
    private = response(session="private:session-words-nobody-reads")
    for one in (kept, private):
        await store.add(one)
    assert await store.get(ME, private.id) == private
    await store.aclose()
    assert b"words-nobody-reads" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    again = ResponseStore(DatabaseResponses(path))
    assert await again.get(ME, kept.id) == kept
    assert await again.get(ME, private.id) is None
    await again.aclose()


async def test_what_was_deleted_can_not_be_read_in_the_file(tmp_path: Path) -> None:
    store, made = ResponseStore(DatabaseResponses(tmp_path / "responses.db")), response()
    await store.add(replace(made, input=[{"id": "i", "text": "the words that go"}]))
    await store.delete(ME, made.id)
    await store.aclose()
    assert b"the words that go" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


# ------------------------------------------------------------------------------------------- of servers with one store


@pytest.fixture
async def servers() -> AsyncIterator[tuple[MemoryBus, list[ResponseStore]]]:
    """The response stores of three servers on one bus."""
    bus = MemoryBus()
    links = [ServerLink(bus) for _ in range(3)]
    yield bus, [ResponseStore(SharedResponses(link)) for link in links]
    for link in links:
        await link.aclose()


async def test_what_servers_store_and_end_at_once_is_whole_at_each_of_them(
    servers: tuple[MemoryBus, list[ResponseStore]],
) -> None:
    _, stores = servers
    made = [response() for _ in range(60)]
    await asyncio.gather(*(stores[number % 3].add(one) for number, one in enumerate(made)))
    ends = [{"n": number, "output": []} for number in range(60)]
    await asyncio.gather(
        *(
            stores[(number + shift) % 3].finish(one, ends[number], [b"frame\n\n"], again=bool(shift))
            for number, one in enumerate(made)
            for shift in (0, 1, 2)
        )
    )
    for store in stores:
        found = [await store.get(ME, one.id) for one in made]
        assert [one and one.body for one in found] == ends
        assert await store.frames(ME, made[0].id) == [b"frame\n\n"]
    await stores[0].forget(made[0].key)
    assert [await stores[1].get(ME, one.id) for one in made] == [None] * 60
    assert not await stores[2].has_response(made[0].key)


async def test_a_response_that_another_server_deletes_does_not_come_back(
    servers: tuple[MemoryBus, list[ResponseStore]],
) -> None:
    bus, (one, other, _) = servers
    made = response()
    await one.add(made)
    assert await other.delete(OTHER, made.id) is False
    assert await other.delete(ME, made.id) is True
    await one.finish(made, {"status": "completed", "output": []}, [])
    assert await one.get(ME, made.id) is None
    assert not bus._values


async def test_each_user_has_responses_of_their_own_also_under_one_id(
    servers: tuple[MemoryBus, list[ResponseStore]],
) -> None:
    _, (one, other, _) = servers
    mine, bob = response(), ResponseOwner("bob", "user")
    await one.add(mine)
    await one.add(replace(mine, owner=bob, input=[]))
    assert [(await other.get(owner, mine.id) or mine).input for owner in (ME, bob)] == [[ITEM], []]
    assert await other.delete(bob, mine.id)
    assert await one.get(ME, mine.id) == mine


async def test_a_private_response_is_not_shared(servers: tuple[MemoryBus, list[ResponseStore]]) -> None:
    bus, (one, other, _) = servers
    private = response(session="private:s")
    await one.add(private)
    assert await one.get(ME, private.id) == private
    assert await other.get(ME, private.id) is None
    assert not bus._values


@pytest.mark.parametrize("id", ["resp_1", "resp_\0", "resp_\ud800", "x" * 5000])
async def test_no_response_has_an_id_that_the_database_would_refuse(
    id: str, servers: tuple[MemoryBus, list[ResponseStore]]
) -> None:
    _, (one, _, _) = servers
    assert await one.get(ME, id) is None
    assert await one.delete(ME, id) is False


async def test_a_database_that_is_away_is_an_error_and_loses_nothing() -> None:
    class AwayBus(MemoryBus):
        away = False

        def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
            if self.away:
                raise StoreError("the database is away", hint="Try again.")
            return super().swap_value(namespace, name, expect, value, keep_s)

    bus = AwayBus()
    link = ServerLink(bus)
    store, made = ResponseStore(SharedResponses(link)), response()
    await store.add(made)
    bus.away = True
    for refused in (store.add(response()), store.finish(made, {"n": 1}, []), store.delete(ME, made.id)):
        with pytest.raises(StoreError, match="away") as error:
            await refused
        assert error.value.hint
    bus.away = False
    assert await store.get(ME, made.id) == made
    await link.aclose()
