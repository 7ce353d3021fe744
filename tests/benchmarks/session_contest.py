"""One session store at one task, in a process of its own: ``python session_contest.py CONTESTANT TASK DIRECTORY [N]``.

Prints a JSON object. Runs in three environments (ours, openai-agents, selectools), so every contestant imports its own.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

WORDS = [
    "time",
    "of",
    "data",
    "people",
    "model",
    "cell",
    "result",
    "answer",
    "value",
    "table",
    "figure",
    "plot",
    "error",
    "kernel",
    "frame",
    "series",
    "index",
]
LATER = 10_000_000
"""The number of the first message behind those that a session was filled with."""
TURNS, BLOCKS = 30, 6
"""Repetitions of one figure."""


@functools.cache
def text(n: int) -> str:
    """330 to 500 characters, another one for every n; ``common`` in nearly all of them, ``rareword`` in one of 25."""
    chosen = random.Random(n)
    words = ["common" if n % 50 else "uncommn", *(chosen.choice(WORDS) for _ in range(chosen.randint(58, 80)))]
    words += ["rareword"] if n % 25 == 0 else []
    return f"{n} " + " ".join(words)[:480]


def role(n: int) -> str:
    return "assistant" if n % 2 else "user"


class Contestant(Protocol):
    """Sessions by name; messages are numbered, ``text(n)``."""

    async def fill(self, session: str, count: int) -> None: ...

    async def turn(self, session: str, n: int) -> None:
        """Adds messages n and n + 1."""
        ...

    async def tail(self, session: str) -> int:
        """Reads the newest 20."""
        ...

    async def search(self, word: str) -> int: ...

    async def close(self) -> None: ...


class Ours:
    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.messages: Any = importlib.import_module("agent_kernel.messages")
        self.model: Any = importlib.import_module("agent_kernel.sessions.model")
        self.store: Any = importlib.import_module("agent_kernel.sessions.sqlite").SqliteStore(
            directory / "ours.db", durable=durable
        )

    def key(self, session: str) -> Any:
        return self.model.SessionKey("local", session)

    def said(self, start: int, count: int) -> list[Any]:
        return [getattr(self.messages, role(n))(text(n)) for n in range(start, start + count)]

    async def fill(self, session: str, count: int) -> None:
        for start in range(0, count, 1000):
            await self.store.add_messages(self.key(session), self.said(start, min(1000, count - start)))

    async def turn(self, session: str, n: int) -> None:
        turn = self.model.Turn(f"turn-{n}", self.key(session))
        await self.store.add_turn(turn, self.said(n, 2))

    async def tail(self, session: str) -> int:
        return len(await self.store.latest(self.key(session), 20))

    async def search(self, word: str) -> int:
        return len(await self.store.search("local", self.model.Query(word)))

    async def index(self) -> None:
        while await self.store.fold(100_000):
            pass

    async def close(self) -> None:
        await self.store.aclose()


class Durable(Ours):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durable=True)


class Adapter(Ours):
    """Our store behind the protocol of openai-agents."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.session: Any = importlib.import_module("agent_kernel.peers.openai_agents").AgentsSession

    async def turn(self, session: str, n: int) -> None:
        await self.session(session, self.store).add_items([{"role": role(k), "content": text(k)} for k in (n, n + 1)])

    async def tail(self, session: str) -> int:
        return len(await self.session(session, self.store).get_items(20))


class OpenAI:
    """Its SQLiteSession, one object for each session, as its documentation has it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "openai.db"
        self.type: Any = importlib.import_module("agents").SQLiteSession
        self.open: dict[str, Any] = {}

    def session(self, name: str) -> Any:
        if name not in self.open:
            self.open[name] = self.type(name, self.path)
        return self.open[name]

    async def fill(self, session: str, count: int) -> None:
        await self.session(session).add_items([{"role": role(n), "content": text(n)} for n in range(count)])

    async def turn(self, session: str, n: int) -> None:
        await self.session(session).add_items([{"role": role(k), "content": text(k)} for k in (n, n + 1)])

    async def tail(self, session: str) -> int:
        return len(await self.session(session).get_items(20))

    async def search(self, word: str) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        for session in self.open.values():
            session.close()


class Selectools:
    """Saves the whole memory, on the event loop, as its agent does."""

    def __init__(self, directory: Path, store: str = "SQLiteSessionStore") -> None:
        sessions: Any = importlib.import_module("selectools.sessions")
        types: Any = importlib.import_module("selectools.types")
        self.memory: Any = importlib.import_module("selectools.memory").ConversationMemory
        self.message: Any = types.Message
        self.role: Any = types.Role
        made = getattr(sessions, store)
        self.store: Any = made(db_path=str(directory / "s.db")) if "SQL" in store else made(str(directory / "json"))
        self.open: dict[str, Any] = {}

    def said(self, start: int, count: int) -> list[Any]:
        return [self.message(role=self.role(role(n)), content=text(n)) for n in range(start, start + count)]

    async def fill(self, session: str, count: int) -> None:
        self.open[session] = self.memory(max_messages=10**9)
        self.open[session].add_many(self.said(0, count))
        self.store.save(session, self.open[session])

    async def turn(self, session: str, n: int) -> None:
        memory = self.open.setdefault(session, self.memory(max_messages=10**9))
        memory.add_many(self.said(n, 2))
        self.store.save(session, memory)

    async def tail(self, session: str) -> int:
        return len(self.store.load(session).get_recent(20))

    async def search(self, word: str) -> int:
        return len(self.store.search(word))

    async def close(self) -> None:
        pass


class SelectoolsJson(Selectools):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "JsonFileSessionStore")


class Floor:
    """The least that keeps messages: one connection, one table, one transaction, WAL, NORMAL."""

    def __init__(self, directory: Path) -> None:
        self.db = sqlite3.connect(directory / "floor.db", isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("CREATE TABLE items (session TEXT, seq INTEGER, body TEXT, UNIQUE (session, seq))")

    def put(self, session: str, ns: Sequence[int]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        for n in ns:
            body = json.dumps({"role": role(n), "content": text(n)})
            self.db.execute("INSERT INTO items VALUES (?, ?, ?)", (session, n, body))
        self.db.execute("COMMIT")

    async def fill(self, session: str, count: int) -> None:
        self.put(session, range(count))

    async def turn(self, session: str, n: int) -> None:
        self.put(session, (n, n + 1))

    def newest(self, session: str) -> int:
        rows = self.db.execute("SELECT body FROM items WHERE session = ? ORDER BY seq DESC LIMIT 20", (session,))
        return len([json.loads(body) for (body,) in rows])

    async def tail(self, session: str) -> int:
        return self.newest(session)

    async def search(self, word: str) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        self.db.close()


class FloorBeside(Floor):
    """The same beside the event loop: in a thread, as everything must be that waits for a disk."""

    async def turn(self, session: str, n: int) -> None:
        await asyncio.to_thread(self.put, session, (n, n + 1))

    async def tail(self, session: str) -> int:
        return await asyncio.to_thread(self.newest, session)


CONTESTANTS: dict[str, Callable[[Path], Any]] = {
    "ours": Ours,
    "ours durable": Durable,
    "ours as openai-agents": Adapter,
    "openai-agents": OpenAI,
    "selectools sqlite": Selectools,
    "selectools json": SelectoolsJson,
    "bare sqlite": Floor,
    "bare sqlite, thread": FloorBeside,
}


def prepare(numbers: Iterable[int]) -> None:
    """Makes the texts, so that no figure has that in it."""
    for n in numbers:
        text(n)


async def timed(work: Callable[[int], Awaitable[Any]]) -> dict[str, float]:
    """Milliseconds of one call: of processor time the least of BLOCKS means (it ticks too coarsely for one call, and
    what else runs on the machine only adds to it), of wall clock the median. Slow work is repeated less."""
    start = time.perf_counter()
    await work(-1)
    slow = time.perf_counter() - start > 0.05
    used, wall = [], []
    for block in range(1 if slow else BLOCKS):
        before = time.process_time()
        for n in range(8 if slow else TURNS):
            start = time.perf_counter()
            await work(block * TURNS + n)
            wall.append(1000 * (time.perf_counter() - start))
        used.append(1000 * (time.process_time() - before) / (n + 1))
    return {"cpu": min(used), "wall": statistics.median(wall)}


async def append(it: Any, count: int) -> dict[str, float]:
    await it.fill("s", count)
    prepare(range(LATER - 2, LATER + 2 * TURNS * BLOCKS))
    return await timed(lambda n: it.turn("s", LATER + 2 * n))


async def tail(it: Any, count: int) -> dict[str, float]:
    await it.fill("s", count)
    assert await it.tail("s") == 20
    return await timed(lambda n: it.tail("s"))


async def calls(it: Any, count: int) -> dict[str, float]:
    """Bytes written by a turn; who traces this process counts its fsyncs between the two marks."""
    await it.fill("s", count)
    await it.turn("s", LATER - 2)
    os.path.exists("/mark-begin")
    before = _written()
    for n in range(20):
        await it.turn("s", LATER + 2 * n)
    after = _written()
    os.path.exists("/mark-end")
    return {"bytes": (after - before) / 20}


def _written() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


async def writers(it: Any, count: int, *, whole: bool = False) -> dict[str, float]:
    """``count`` sessions of 20 messages by 8 writers: turn by turn, or each ``whole``, in one call."""
    prepare(range(20 * count))
    queue = iter(range(count))
    errors = 0

    async def write() -> None:
        nonlocal errors
        for session in queue:
            for n in range(0, 1 if whole else 20, 2):
                try:
                    await (it.fill(f"s{session}", 20) if whole else it.turn(f"s{session}", 20 * session + n))
                except (OSError, sqlite3.Error, RuntimeError):
                    errors += 1

    start, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*[write() for _ in range(8)])
    committed, used = time.perf_counter() - start, time.process_time() - used
    if hasattr(it, "index"):
        await it.index()
    complete = sum([await it.tail(f"s{n}") == 20 for n in range(count)])
    return {
        "committed/s": count / committed,
        "cpu": 1000 * used / count,
        "indexed/s": count / (time.perf_counter() - start),
        "errors": errors,
        "whole": complete,
    }


async def batches(it: Any, count: int) -> dict[str, float]:
    return await writers(it, count, whole=True)


async def search(it: Any, count: int) -> dict[str, float]:
    for session in range(count):
        if isinstance(it, Ours):
            await it.store.add_messages(it.key(f"s{session}"), it.said(20 * session, 20))
        else:
            await it.turn(f"s{session}", 20 * session)
            it.open[f"s{session}"].add_many(it.said(20 * session + 2, 18))
            it.store.save(f"s{session}", it.open[f"s{session}"])
    if isinstance(it, Ours):
        await it.index()
    assert await it.search("rareword") == await it.search("common") == 5
    rare, common = await timed(lambda n: it.search("rareword")), await timed(lambda n: it.search("common"))
    return {"rare": rare["wall"], "rare cpu": rare["cpu"], "common": common["wall"], "common cpu": common["cpu"]}


async def match(it: Any, count: int) -> dict[str, float]:
    """Which of so many sessions began like this?"""
    for session in range(count):
        key = it.key(f"s{session}")
        items = await it.store.add_messages(key, it.said(2 * session, 2))
        chain = {item.seq: f"{session}.{at}" for at, item in enumerate(items)}
        await it.store.remember(key, "scope", chain)
    wanted = f"{count // 2}.1"
    found = await it.store.match("local", "scope", [f"{count // 2}.0", wanted, "newer"])
    assert found is not None
    assert found.key.id == f"s{count // 2}"
    return await timed(lambda n: it.store.match("local", "scope", [f"{n}.0", f"{n}.1", "newer"]))


async def stall(it: Any, count: int) -> dict[str, float]:
    """The longest time for which the event loop does nothing else, while turns are added to a long session."""
    await it.fill("s", count)
    prepare(range(LATER, LATER + 10))
    worst, stop = 0.0, False

    async def tick() -> None:
        nonlocal worst
        last = time.perf_counter()
        while not stop:
            await asyncio.sleep(0)
            now = time.perf_counter()
            worst, last = max(worst, now - last), now

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    for n in range(5):
        await it.turn("s", LATER + 2 * n)
        await it.tail("s")
    stop = True
    await ticking
    return {"worst": 1000 * worst}


TASKS: dict[str, Callable[[Any, int], Awaitable[dict[str, float]]]] = {
    "append": append,
    "tail": tail,
    "calls": calls,
    "writers": writers,
    "batches": batches,
    "search": search,
    "match": match,
    "stall": stall,
}


async def main(contestant: str, task: str, directory: str, count: str = "0") -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)
    it = CONTESTANTS[contestant](Path(directory))
    print(json.dumps(await TASKS[task](it, int(count))))
    await it.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
