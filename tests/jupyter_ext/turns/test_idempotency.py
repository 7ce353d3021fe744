"""Tests that one idempotency key starts one turn, whichever clients join or leave and whichever server they use."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_kernel.core.errors import EngineError, InvalidRequest, KeyReused
from agent_kernel.core.events import TextDelta
from agent_kernel.core.messages import Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.database import Database
from jupyter_ext.auth.callers import Caller
from jupyter_ext.turns import idempotency, idempotency_rows, turns
from jupyter_ext.turns.idempotency import Idempotency, StartedTurn, read_key
from jupyter_ext.turns.idempotency_rows import DatabaseRows, IdempotencyKey
from jupyter_ext.turns.server_state import open_server_db
from jupyter_ext.turns.turns import LiveTurn, Turns
from tests.jupyter_ext.quotas.test_limits import Server, ended
from tests.narrowing import not_none
from tests.turns import CancelledAt

CALLER = Caller("ada")


def key(name: str = "k", body: bytes = b"{}", caller: Caller = CALLER) -> IdempotencyKey:
    found = not_none(read_key(caller, name, "/agent/v1/turns", body))
    return found


class Desk:
    """Sends requests with keys to a scripted server. ``begun`` counts the turns that they started."""

    def __init__(self, server: Server, rows: Database) -> None:
        self.server = server
        self.idempotency = Idempotency(
            server.runtime.store, server.turns, DatabaseRows(rows, server.clock), clock=server.clock
        )
        self.begun = 0

    def begin(self, prompt: str = "hello", session: str = "") -> Callable[[str], Awaitable[StartedTurn | None]]:
        async def begin(turn: str) -> StartedTurn:
            order = self.server.order(prompt, session=session)
            await asyncio.sleep(0)
            if prompt == "refused":
                raise EngineError("no")
            await self.server.runtime.store.create(order.key)
            self.begun += 1
            return StartedTurn(
                await self.server.turns.start(type(order)(order.key, order.request, id=turn)), {"n": self.begun}
            )

        return begin

    async def once(self, which: IdempotencyKey, prompt: str = "hello", session: str = "") -> StartedTurn:
        found = not_none(await self.idempotency.start_once(which, self.begin(prompt, session)))
        return found


@asynccontextmanager
async def open_desk(tmp_path: Path, rows: Database | None = None) -> AsyncIterator[Desk]:
    async with Server(tmp_path) as server:
        made = Desk(server, rows or server.records)
        yield made
        await server.turns.aclose()
        await made.idempotency.aclose()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path) as made:
        yield made


def text(turn: LiveTurn) -> str:
    return "".join(event.body.text for event in turn.log.since(0) if isinstance(event.body, TextDelta))


def test_a_key_is_that_of_one_caller_and_one_request_below_any_mount() -> None:
    here, mounted = [read_key(CALLER, "k", path, b"{}") for path in ("/user/ada/agent/v1/turns", "/v1/turns")]
    assert here == mounted
    other = [
        read_key(CALLER, "k", "/v1/responses", b"{}"),
        read_key(CALLER, "k", "/v1/turns", b"{ }"),
        read_key(Caller("bob"), "k", "/v1/turns", b"{}"),
    ]
    assert here is not None
    assert here not in other
    assert [one is not None and one.identity == here.identity for one in other] == [True, True, False]
    assert read_key(CALLER, None, "/v1/turns", b"{}") is None
    for wrong in ("", " k", "k ", "\n", "é", "x" * 256):
        with pytest.raises(InvalidRequest):
            read_key(CALLER, wrong, "/v1/turns", b"{}")


async def test_whoever_comes_while_it_begins_gets_the_same_turn(desk: Desk) -> None:
    found = await asyncio.gather(*(desk.once(key()) for _ in range(20)))
    assert desk.begun == 1
    assert len({id(one.turn) for one in found}) == 1
    assert sorted(one.replayed for one in found) == [False, *[True] * 19]


async def test_whoever_joined_a_start_that_fails_hears_so_and_the_key_is_free(desk: Desk) -> None:
    results = await asyncio.gather(*(desk.once(key(), "refused") for _ in range(5)), return_exceptions=True)
    assert {type(result) for result in results} == {EngineError}
    assert (await desk.once(key())).replayed is False


async def test_wherever_the_first_request_is_given_up_its_key_is_free_or_has_its_turn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "BEGINS_WITHIN_S", 0.1)
    stopped = 0
    for n in range(1, 40):
        which, before = key(f"k{n}"), desk.begun
        task = asyncio.create_task(CancelledAt(desk.once(which), n).run())
        await asyncio.wait([task])
        stopped += task.cancelled()
        began = desk.begun - before
        found = await desk.once(which)
        await ended(found.turn)
        assert desk.begun - before <= 1 + began
        assert text(found.turn) == "Hello there."
        if not task.cancelled():
            assert found.replayed
            break
    assert 2 < stopped < 39


async def test_two_servers_on_one_file_begin_one_turn(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    rows = [open_server_db(tmp_path / "requests.db") for _ in range(2)]
    slow = {"text": "one two three", "deltas": 3, "delay": 0.05, "loop": True}
    async with Server(tmp_path / "a", [slow]) as server:
        first, second = (Desk(server, each) for each in rows)
        second.idempotency._turns = type(server.turns)(
            server.runtime, server.limits
        )  # knows nothing of the first one's turns
        one, two = await asyncio.gather(first.once(key()), second.once(key()))
        await asyncio.gather(ended(one.turn), ended(two.turn))
        assert first.begun + second.begun == 1
        assert one.turn.id == two.turn.id
        assert text(one.turn) == text(two.turn) == "one two three"
        await first.idempotency.aclose()
        await second.idempotency.aclose()
    for each in rows:
        await each.aclose()


async def test_a_client_that_comes_back_in_time_finds_its_turn_running(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "GRACE_S", 0.05)
    begun = await desk.once(key(), "hang")
    entry = begun.entry or pytest.fail("it came with a key")
    desk.idempotency.add_reader(entry)
    desk.idempotency.remove_reader(entry)
    desk.idempotency.add_reader(entry)
    await asyncio.sleep(0.15)
    assert begun.turn.running
    desk.idempotency.remove_reader(entry)
    assert (await ended(begun.turn)).reason == idempotency.LEFT
    assert (await desk.once(key(), "hang")).replayed is False, "it had done nothing"


async def test_a_turn_that_runs_on_without_its_client_is_not_stopped(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "GRACE_S", 0.01)
    begun = await desk.once(key(), "hang")
    entry = begun.entry or pytest.fail("it came with a key")
    desk.idempotency.add_reader(entry)
    desk.idempotency.remove_reader(entry, stops=False)
    await asyncio.sleep(0.1)
    assert begun.turn.running


async def test_logs_are_held_within_bounds_and_later_made_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MOST_HELD", 3)
    monkeypatch.setattr(turns, "KEEP_S", 0)
    for n in range(8):
        await ended((await desk.once(key(f"k{n}"), session=f"private:p{n}" if n == 1 else f"s{n}")).turn)
        await asyncio.sleep(0.01)
    assert len(desk.idempotency._entries) <= 4
    again = await desk.once(key("k0"))
    await ended(again.turn)
    assert (again.replayed, text(again.turn), again.facts) == (True, "Hello there.", {"n": 1})
    with pytest.raises(KeyReused, match="no longer stored"):
        await desk.once(key("k1"))
    assert desk.begun == 8
    assert b"private:p1" not in await _dump(desk.server.records)


async def _dump(database: Database) -> bytes:
    return await database.read(lambda connection: "\n".join(connection.iterdump()).encode())


async def test_what_was_deleted_with_its_session_is_not_said_again(desk: Desk) -> None:
    begun = await desk.once(key())
    await ended(begun.turn)
    await desk.server.runtime.store.delete(begun.turn.spec.key)
    with pytest.raises(KeyReused, match="no longer stored"):
        await desk.once(key())


async def test_a_key_holds_for_a_day(desk: Desk) -> None:
    await ended((await desk.once(key())).turn)
    desk.server.clock.now += idempotency_rows.KEPT_S - 1
    assert (await desk.once(key())).replayed
    with pytest.raises(KeyReused):
        await desk.once(key(body=b"other"))
    desk.server.clock.now += 2
    assert (await desk.once(key(body=b"other"))).replayed is False
    assert desk.begun == 2


async def test_a_user_has_so_many_keys_and_old_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency_rows, "MOST", 5)
    database, now = open_server_db(None), [1_000_000.0]
    rows = DatabaseRows(database, lambda: now[0])
    for n in range(20):
        now[0] += 1
        await rows.claim(key(f"k{n}"), f"t{n}")
        await rows.claim(key(f"k{n}", caller=Caller("bob")), f"t{n}") if n < 2 else None
    assert [n for n in range(20) if await rows.find(key(f"k{n}"))] == list(range(15, 20))
    assert await rows.find(key("k0", caller=Caller("bob")))
    now[0] += idempotency_rows.KEPT_S
    await rows.claim(key("last"), "t")
    assert (await _dump(database)).count(b"INSERT INTO") == 1
    await database.aclose()


async def test_a_start_without_a_record_is_no_start(tmp_path: Path) -> None:
    """What cannot be noted is not begun: its repetition would begin it again."""
    blocked = tmp_path / "requests.db"
    blocked.mkdir()
    async with open_desk(tmp_path, open_server_db(blocked)) as made:
        with pytest.raises(Exception, match=r"requests\.db"):
            await made.once(key())
        assert made.begun == 0
        blocked.rmdir()
        await ended((await made.once(key())).turn)


CALL = ToolCall("c1", "python", {"code": "book()"})
SAID = user("book")
CALLED = [SAID, assistant("", [CALL])]
DONE = [*CALLED, tool_result(CALL, "booked", "success")]


async def open_turn_of_key(
    made: Desk, which: IdempotencyKey, messages: list[Message], *, owner: Owner | None = None
) -> tuple[Turn, Owner]:
    """Return an open turn under a key that this server knows only from the disk, and its owner."""
    session, owner = SessionKey("ada", which.key[:20]), owner or Owner.here()
    store, rows = made.server.runtime.store, DatabaseRows(made.server.records, made.server.clock)
    await store.create(session)
    turn = await store.open_turn(Turn(f"turn_{which.key[:8]}", session), owner)
    await store.append(turn, owner, messages, 0)
    assert await rows.claim(which, turn.id) is None
    await rows.mark_begun(which, turn.id, session.id, {})
    return turn, owner


@pytest.mark.parametrize(("messages", "again"), [([SAID], False), (CALLED, True), (DONE, True)])
async def test_a_turn_that_was_killed_runs_no_tool_twice(desk: Desk, messages: list[Message], again: bool) -> None:
    """Whoever closes a turn in the place of its server writes no record of it."""
    dead = dataclasses.replace(Owner.here(), pid=999_999, started="1", instance="dead")
    turn, _ = await open_turn_of_key(desk, key(), messages, owner=dead)
    closed = await desk.server.runtime.store.recover()
    assert [(one.id, one.state, one.record) for one in closed] == [(turn.id, "interrupted", {})]
    begun = await desk.once(key())
    assert (begun.replayed, desk.begun) == (again, 0 if again else 1)
    assert (begun.turn.id == turn.id) is again
    assert (await ended(begun.turn)).state == ("interrupted" if again else "committed")


@pytest.mark.parametrize("reason", [idempotency.LEFT, "the server was stopped"])
@pytest.mark.parametrize(("messages", "again"), [([SAID], False), (CALLED, True)])
async def test_a_turn_that_was_stopped_before_it_did_anything_begins_again_after_a_restart(
    desk: Desk, messages: list[Message], again: bool, reason: str
) -> None:
    turn, owner = await open_turn_of_key(desk, key(), messages)
    await desk.server.runtime.store.close_turn(turn, owner, "cancelled", reason)
    assert (await desk.once(key())).replayed is again


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_turn_that_its_server_stopped_begins_again(desk: Desk, restarted: bool) -> None:
    first = (await desk.once(key(), "hang")).turn
    while first.log.head < 3:
        await asyncio.sleep(0)
    await desk.server.turns.aclose()
    if restarted:
        desk.server.turns = Turns(desk.server.runtime, desk.server.limits)
        desk.idempotency = Idempotency(desk.server.runtime.store, desk.server.turns, DatabaseRows(desk.server.records))
    again = await desk.once(key(), "hang")
    assert again.replayed is False
    assert again.turn.id != first.id


async def test_what_a_person_stopped_is_not_begun_again(desk: Desk) -> None:
    turn, owner = await open_turn_of_key(desk, key(), [SAID])
    await desk.server.runtime.store.close_turn(turn, owner, "cancelled", "enough")
    assert (await desk.once(key())).replayed
