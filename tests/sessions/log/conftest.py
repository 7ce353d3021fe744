"""Shared stores behind the fixture ``store``: on a log in memory, and on a real PostgreSQL and Redis (``make
test-stores``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from agent_kernel.sessions.log.encrypted_log import EncryptedLog
from agent_kernel.sessions.log.log_store import LogStore
from agent_kernel.sessions.log.memory_log import MemoryLog
from agent_kernel.sessions.store.shared_store import SharedStore
from tests.sessions.log.servers import Postgres, Redis
from tests.sessions.talk import Clock

LOGS = ["memory", *(pytest.param(name, marks=pytest.mark.stores) for name in ("encrypted", "postgresql", "redis"))]
KEY = bytes(range(32))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    server = Postgres(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest, clock: Clock) -> Iterator[LogStore]:
    if request.param == "memory":
        made: LogStore = MemoryLog(clock)
    elif request.param == "encrypted":
        made = EncryptedLog(MemoryLog(clock), KEY)
    elif request.param == "redis":
        from agent_kernel.sessions.log.redis import RedisLog

        made = RedisLog(request.getfixturevalue("redis_server").fresh())
    else:
        from agent_kernel.sessions.log.postgresql import PostgresLog

        made = PostgresLog(request.getfixturevalue("postgres").fresh())
    yield made
    made.close()


def connect_again(log: LogStore) -> LogStore:
    if isinstance(log, EncryptedLog):
        return EncryptedLog(connect_again(log._log), log._key)
    return log if isinstance(log, MemoryLog) else type(log)(log._url)  # type: ignore[attr-defined, call-arg]  # of the servers


@pytest.fixture
def again(log: LogStore) -> Iterator[Callable[[], LogStore]]:
    """Opens the same log as another server would, on a connection of its own."""
    opened: list[LogStore] = []

    def connect() -> LogStore:
        opened.append(connect_again(log))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
async def store(log: LogStore, clock: Clock) -> AsyncIterator[SharedStore]:
    made = SharedStore(log, clock=clock)
    yield made
    await made.aclose()
