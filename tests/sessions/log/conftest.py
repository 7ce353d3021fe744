"""Shared stores behind the fixture ``store``: on logs in memory, and (``make test-stores``) on a real PostgreSQL and
Redis, on fakes of MongoDB and DynamoDB, and on a real PostgreSQL behind a fake of Supabase's API."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.sessions.log.batched_log import BatchedLog
from agent_kernel.sessions.log.encrypted_log import EncryptedLog
from agent_kernel.sessions.log.log_store import LogStore
from agent_kernel.sessions.store.shared_store import SharedStore
from agent_kernel.sessions.store.store_url import open_log
from tests.sessions.log.memory_log import MemoryLog
from tests.sessions.log.memory_table import MemoryTable
from tests.sessions.log.servers import FakeDynamo, Postgres, RealDynamo, RealMongo, Redis
from tests.sessions.talk import Clock

LOGS = (
    "memory",
    "batched",
    *(
        pytest.param(name, marks=pytest.mark.stores)
        for name in ("encrypted", "postgresql", "redis", "mongodb", "dynamodb", "supabase")
    ),
)
KEY = bytes(range(32))
MOTO = Path(__file__).parents[3] / "build" / "moto" / "bin" / "python"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    # Not in the directory of pytest: for root, PostgreSQL runs as another user, and every pytest that starts on this
    # machine takes away the rights of others to the directory that all have in common.
    with tempfile.TemporaryDirectory(prefix="agent-kernel-postgres-") as directory:
        server = Postgres(Path(directory) / "data")
        yield server
        server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mongo() -> Iterator[Any]:
    """A fake MongoDB, or the real server that AGENT_KERNEL_TEST_MONGODB names."""
    from tests.sessions.log.fake_mongodb import FakeMongo

    real = os.environ.get("AGENT_KERNEL_TEST_MONGODB")
    server = RealMongo(real) if real else FakeMongo()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def dynamo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDynamo | RealDynamo]:
    """A fake DynamoDB, or the real table that AGENT_KERNEL_TEST_DYNAMODB names."""
    real = os.environ.get("AGENT_KERNEL_TEST_DYNAMODB")
    with pytest.MonkeyPatch.context() as patch:
        if not real:
            patch.setenv("AWS_ACCESS_KEY_ID", "none")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "none")
        server = RealDynamo(real) if real else FakeDynamo(MOTO, tmp_path_factory.mktemp("moto"))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def supabase(postgres: Postgres) -> Iterator[Any]:
    """A fake API in front of a real PostgreSQL."""
    from tests.sessions.log.fake_postgrest import FakeSupabase

    server = FakeSupabase(postgres)
    yield server
    server.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the whole contract of sessions on the slow fakes, which takes minutes, as slow. The contract of logs covers
    what is special to them; `make test-stores ARGS="-m stores"` runs everything.
    """
    many = {"test_contract.py", "test_shared.py"}
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name in many:
            server = getattr(item, "callspec", None) and item.callspec.params.get("make_log")  # type: ignore[attr-defined]
            if server in ("dynamodb", "supabase"):
                item.add_marker("slow")


SERVERS = {
    "postgresql": "postgres",
    "redis": "redis_server",
    "mongodb": "mongo",
    "dynamodb": "dynamo",
    "supabase": "supabase",
}


@pytest.fixture(params=LOGS)
def make_log(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Callable[[], LogStore]]:
    """A function that makes an empty log."""
    makers: dict[str, Callable[[], LogStore]] = {
        "memory": lambda: MemoryLog(clock),
        "batched": lambda: BatchedLog(MemoryTable(clock)),
        "encrypted": lambda: EncryptedLog(MemoryLog(clock), KEY),
    }
    server = None if request.param in makers else request.getfixturevalue(SERVERS[request.param])
    made: list[LogStore] = []

    def make() -> LogStore:
        made.append(makers[request.param]() if server is None else open_log(server.fresh()))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def log(make_log: Callable[[], LogStore]) -> LogStore:
    return make_log()


def connect_again(log: LogStore) -> LogStore:
    if isinstance(log, EncryptedLog):
        return EncryptedLog(connect_again(log._log), log._key)
    if isinstance(log, BatchedLog) and isinstance(log._table, MemoryTable):
        return BatchedLog(log._table)
    if isinstance(log, MemoryLog):
        return log
    opened = log._table if isinstance(log, BatchedLog) else log
    return open_log(opened._url)  # type: ignore[union-attr]  # of the servers


@pytest.fixture
def again(log: LogStore) -> Iterator[Callable[[], LogStore]]:
    """A function that opens the same log on a new connection, as another server would."""
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
