"""Tests several processes on one file, and processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from agent_kernel.core.errors import SequenceConflict
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import LEASE_S, Owner, SessionKey, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.file import Start, rows
from tests.sessions.talk import KEY, Talk, calls

APPENDER = """
await store.create(SessionKey("local", {session!r}))
for n in range({turns}):
    while True:
        try:
            turn = await store.open_turn(Turn(f"{name}-{{n}}", SessionKey("local", {session!r})), owner)
            break
        except SessionBusy:
            await asyncio.sleep(0.002)
    head = (await store.info(turn.key)).head
    items = await store.append(turn, owner, [user(f"{name}-{{n}}"), calls("c")], head)
    await store.append(turn, owner, [result("c"), assistant("done")], items[-1].seq)
    assert await store.close_turn(turn, owner, "committed")
"""


def histories(path: Path) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for session, seq, turn in rows(path, "SELECT session, seq, turn FROM items ORDER BY session, seq"):
        found.setdefault(str(session), []).append((int(str(seq)), str(turn)))
    return found


def assert_whole(history: list[tuple[int, str]], turns: int) -> None:
    """Check that no item is lost or duplicated, and that the items of a turn are adjacent."""
    assert [seq for seq, _ in history] == list(range(1, 4 * turns + 1))
    fours = [{turn for _, turn in history[at : at + 4]} for at in range(0, len(history), 4)]
    assert all(len(four) == 1 for four in fours)
    assert len({turn for four in fours for turn in four}) == turns


async def test_four_processes_on_one_session_and_on_their_own(start: Start, path: Path) -> None:
    same = [start(APPENDER.format(session="same", turns=12, name=f"p{n}")) for n in range(2)]
    own = [start(APPENDER.format(session=f"own{n}", turns=25, name=f"q{n}")) for n in range(2)]
    for child in same + own:
        child.done()
    found = histories(path)
    assert_whole(found["same"], 24)
    assert_whole(found["own0"], 25)
    assert_whole(found["own1"], 25)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_four_processes_race_with_expect_seq_and_none_is_lost(
    file_store: SqliteStore, start: Start, path: Path
) -> None:
    owner = Owner("shared", os.getpid())
    talk = await Talk.begin(file_store, owner)
    code = """
    owner = Owner("shared", 1)
    turn = Turn("t1", SessionKey("local", "s"))
    won = 0
    while won < 15:
        head = (await store.info(turn.key)).head
        try:
            await store.append(turn, owner, [user(f"{NAME}-{won}"), user(f"{NAME}-{won}")], head)
            won += 1
        except SequenceConflict:
            pass
    """
    for child in [start(code.replace("NAME", str(n))) for n in range(4)]:
        child.done()
    texts = await talk.texts()
    assert texts[::2] == texts[1::2]
    assert sorted(texts[::2]) == sorted(f"{n}-{won}" for n in range(4) for won in range(15))


async def test_eight_tasks_on_one_session_lose_nothing(file_store: SqliteStore) -> None:
    talk = await Talk.begin(file_store, Owner.here())

    async def writer(name: int) -> int:
        conflicts = 0
        for n in range(10):
            while True:
                head = await talk.head()
                try:
                    await file_store.append(talk.turn, talk.owner, [user(f"{name}-{n}"), user(f"{name}-{n}")], head)
                    break
                except SequenceConflict:
                    conflicts += 1
        return conflicts

    conflicts = sum(await asyncio.gather(*[writer(name) for name in range(8)]))
    texts = await talk.texts()
    assert conflicts > 0
    assert texts[::2] == texts[1::2]
    assert sorted(texts[::2]) == sorted(f"{name}-{n}" for name in range(8) for n in range(10))


async def test_eight_tasks_on_sessions_of_their_own_lose_nothing(file_store: SqliteStore) -> None:
    async def writer(name: int) -> list[str]:
        talk = await Talk.begin(file_store, Owner.here(), id=f"s{name}")
        for n in range(20):
            await talk.say(user(str(n)), assistant(str(n)))
        await talk.close()
        return await talk.texts()

    for texts in await asyncio.gather(*[writer(name) for name in range(8)]):
        assert texts == [str(n) for n in range(20) for _ in range(2)]


async def test_many_processes_make_the_file_at_once(start: Start, path: Path) -> None:
    for child in [start(f'await store.create(SessionKey("local", "s{n}"))') for n in range(6)]:
        child.done()
    assert rows(path, "SELECT count(*) FROM sessions") == [(6,)]


BRANCHER = """
key = SessionKey("local", "s")
print("ready", flush=True)
sys.stdin.readline()
names = []
for name in ("same", ""):
    try:
        names.append((await store.branch(key, name=name)).name)
    except Conflict:
        names.append("refused")
popped = [len(await store.pop(SessionKey("local", "one"))) for _ in range(2)]
print(*names, sum(popped))
"""


async def test_processes_that_branch_and_pop_at_once_each_get_their_own(
    file_store: SqliteStore, start: Start, path: Path
) -> None:
    for n in (1, 2):
        await file_store.add_turn(Turn(f"t{n}", KEY), [user(f"u{n}")])
    await file_store.add_turn(Turn("t", SessionKey("local", "one")), [user("the only one")])
    children = [start(BRANCHER) for _ in range(2)]
    for child in children:
        assert child.line() == "ready"
    for child in children:
        child.say("go")
    told = [child.done().split() for child in children]
    assert sorted(names[0] for names in told) == ["refused", "same"]
    assert len({names[1] for names in told}) == 2
    assert sorted(names[2] for names in told) == ["0", "1"]
    assert [item.message.text for item in await file_store.latest(KEY, branch="main")] == ["u1", "u2"]


ENDLESS = """
talk = await Talk.begin(store, owner)
await talk.say(user("start"))
print("ready", flush=True)
n = 0
while True:
    await talk.say(user("x" * 3000), calls("a", "b"))
    await talk.say(result("a"))
    await talk.say(result("b"), assistant("done"))
"""


@pytest.mark.parametrize("after", [0.0, 0.013, 0.05])
async def test_a_process_killed_while_it_appends_leaves_whole_batches(
    file_store: SqliteStore, start: Start, path: Path, after: float
) -> None:
    child = start(ENDLESS)
    assert child.line() == "ready"
    time.sleep(after)
    child.kill()
    roles = "".join(item.message.role[0] for item in await file_store.latest(KEY))
    body = roles.removeprefix("u")
    rest = body[len(body) // 5 * 5 :]
    assert body.startswith("uatta" * (len(body) // 5))
    assert rest in ("", "ua", "uat")
    [closed] = await file_store.recover()
    assert (closed.id, closed.state) == ("t1", "interrupted")
    items = await file_store.latest(KEY)
    asked = [call.id for item in items for call in item.message.calls]
    answered = [item.message.call_id for item in items if item.message.role == "tool"]
    assert sorted(asked) == sorted(str(id) for id in answered)
    assert await file_store.recover() == []
    talk = await Talk.begin(file_store, Owner.here(), turn="t2")
    await talk.say(user("the session goes on"))


async def test_a_killed_owner_that_nobody_reaped_is_dead(file_store: SqliteStore, start: Start, path: Path) -> None:
    child = start(ENDLESS)
    assert child.line() == "ready"
    child.process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOWAIT)
    assert [turn.id for turn in await file_store.recover()] == ["t1"]
    child.kill()


async def test_processes_that_recover_together_close_each_turn_once(
    file_store: SqliteStore, start: Start, path: Path
) -> None:
    gone = Owner("gone", 1, boot="another-boot", machine="another-machine")
    for n in range(40):
        talk = await Talk.begin(file_store, gone, id=f"s{n}")
        await talk.say(calls("c"))
    late = f"lambda: time.time() + {LEASE_S + 1}"
    moment = time.time() + 2.0
    code = f"""
    store = SqliteStore(store.path, clock={late})
    while time.time() < {moment}:
        await asyncio.sleep(0.001)
    print(" ".join(turn.key.id for turn in await store.recover()))
    """
    closed = [id for child in [start(code) for _ in range(4)] for id in child.done().split()]
    assert sorted(closed) == sorted(f"s{n}" for n in range(40))
    assert rows(path, "SELECT DISTINCT state FROM turns") == [("interrupted",)]
    assert rows(path, "SELECT count(*) FROM items WHERE kind = 'result'") == [(40,)]
