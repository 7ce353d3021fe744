"""The contestants of ``session_contest.py``: our store, its adapter, the stores of other frameworks, and plain sqlite3
as the lower bound.

Each constructor imports its own library, because no environment has all of them.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import random
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

URL = "SESSION_CONTEST_URL"
"""The variable with the URL of the database, for the contestants that need one: as ``store_url`` takes it."""
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


@functools.cache
def text(n: int) -> str:
    """Return a text of 330 to 500 characters that is different for every ``n``. Nearly all texts contain ``common``,
    one in 25 ``rareword``.
    """
    chosen = random.Random(n)
    words = ["common" if n % 50 else "uncommn", *(chosen.choice(WORDS) for _ in range(chosen.randint(58, 80)))]
    words += ["rareword"] if n % 25 == 0 else []
    return f"{n} " + " ".join(words)[:480]


def role(n: int) -> str:
    return "assistant" if n % 2 else "user"


class Ours:
    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.messages: Any = importlib.import_module("agent_kernel.core.messages")
        self.model: Any = importlib.import_module("agent_kernel.core.session")
        self.store: Any = importlib.import_module("agent_kernel.sessions.store.sqlite").SqliteStore(
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
        return len(await self.store.search("local", self.model.SessionQuery(word)))

    async def index(self) -> None:
        while await self.store.fold(100_000):
            pass

    async def close(self) -> None:
        await self.store.aclose()


class Durable(Ours):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durable=True)


class Adapter(Ours):
    """Our store through the session protocol of openai-agents."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.session: Any = importlib.import_module("agent_kernel.sessions.adapters.openai_agents").AgentsSession

    async def turn(self, session: str, n: int) -> None:
        await self.session(session, self.store).add_items([{"role": role(k), "content": text(k)} for k in (n, n + 1)])

    async def tail(self, session: str) -> int:
        return len(await self.session(session, self.store).get_items(20))


class OpenAI:
    """SQLiteSession of openai-agents, with one object for each session, as its documentation shows."""

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

    async def close(self) -> None:
        for session in self.open.values():
            session.close()


class Selectools:
    """The store of selectools. It saves the whole memory on the event loop, as its agent does."""

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
    """The least code that stores messages in SQLite: one connection, one table, one transaction per turn, WAL,
    synchronous=NORMAL.
    """

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

    async def close(self) -> None:
        self.db.close()


class FloorBeside(Floor):
    """``Floor`` in a thread, because disk access must not block the event loop."""

    async def turn(self, session: str, n: int) -> None:
        await asyncio.to_thread(self.put, session, (n, n + 1))

    async def tail(self, session: str) -> int:
        return await asyncio.to_thread(self.newest, session)


class OursShared(Ours):
    """Our store on the database whose URL is in the environment."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.store = importlib.import_module("agent_kernel.sessions.store.store_url").open_store(os.environ[URL])


class OpenAISqlAlchemy(OpenAI):
    """SQLAlchemySession of openai-agents on PostgreSQL, with one engine for all sessions."""

    def __init__(self, directory: Path) -> None:
        memory: Any = importlib.import_module("agents.extensions.memory")
        sqlalchemy: Any = importlib.import_module("sqlalchemy.ext.asyncio")
        address, _, schema = os.environ[URL].partition("&options=-csearch_path%3D")
        self.engine = sqlalchemy.create_async_engine(
            address.replace("postgresql:", "postgresql+asyncpg:"),
            connect_args={"server_settings": {"search_path": schema}},
            pool_size=8,
        )
        self.type = lambda name, path: memory.SQLAlchemySession(name, engine=self.engine)
        self.first: Any = memory.SQLAlchemySession("first", engine=self.engine, create_tables=True)
        self.made = asyncio.Lock()
        self.path = directory
        self.open: dict[str, Any] = {}

    async def fill(self, session: str, count: int) -> None:
        await self.make_tables()
        await super().fill(session, count)

    async def turn(self, session: str, n: int) -> None:
        await self.make_tables()
        await super().turn(session, n)

    async def make_tables(self) -> None:
        async with self.made:
            if self.first is not None:
                await self.first.get_items(1)
                self.first = None

    async def close(self) -> None:
        await self.engine.dispose()


class OpenAIRedis(OpenAI):
    """RedisSession of openai-agents, with one client for all sessions."""

    def __init__(self, directory: Path) -> None:
        memory: Any = importlib.import_module("agents.extensions.memory")
        address, _, prefix = os.environ[URL].partition("?prefix=")
        self.client: Any = importlib.import_module("redis.asyncio").Redis.from_url(address)
        self.type = lambda name, path: memory.RedisSession(name, redis_client=self.client, key_prefix=prefix)
        self.path = directory
        self.open: dict[str, Any] = {}

    async def close(self) -> None:
        await self.client.aclose()


class SelectoolsRedis(Selectools):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        address, _, prefix = os.environ[URL].partition("?prefix=")
        sessions: Any = importlib.import_module("selectools.sessions")
        self.store = sessions.RedisSessionStore(url=address, prefix=f"{prefix}:")


CONTESTANTS: dict[str, Callable[[Path], Any]] = {
    "ours": Ours,
    "ours durable": Durable,
    "ours as openai-agents": Adapter,
    "openai-agents": OpenAI,
    "selectools sqlite": Selectools,
    "selectools json": SelectoolsJson,
    "ours, shared": OursShared,
    "openai-agents postgresql": OpenAISqlAlchemy,
    "openai-agents redis": OpenAIRedis,
    "selectools redis": SelectoolsRedis,
    "bare sqlite": Floor,
    "bare sqlite, thread": FloorBeside,
}
