"""A real PostgreSQL that goes away, is newer, or is not there; and a password that is never shown."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.core.messages import user
from agent_kernel.sessions.store.store_url import open_store
from tests.sessions.log.servers import Postgres
from tests.sessions.talk import KEY

pytestmark = pytest.mark.stores
ROOT = Path(__file__).parents[3]
WRITER = """
import asyncio, sys
from agent_kernel.core.messages import user
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.store_url import open_store

async def main():
    store = open_store(sys.argv[1])
    for number in range(100_000):
        await store.add_messages(SessionKey("local", "s"), [user(f"{sys.argv[2]} {number}")])
        print(number, flush=True)

asyncio.run(main())
"""


async def test_a_connection_that_the_server_closed_is_made_again(postgres: Postgres) -> None:
    store = open_store(postgres.fresh())
    await store.create(KEY)
    for call in (store.info, store.create):
        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'agent-kernel'")
        assert await call(KEY) is not None
    await store.aclose()


async def test_tables_of_a_newer_version_are_refused(postgres: Postgres) -> None:
    url = postgres.fresh()
    store = open_store(url)
    await store.create(KEY)
    await store.aclose()
    postgres.run(f"UPDATE {url.rpartition('%3D')[2]}.agent_kernel_version SET version = 99")
    newer = open_store(url)
    with pytest.raises(StoreCorrupt, match="newer agent-kernel"):
        await newer.info(KEY)
    await newer.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:se%23cret@127.0.0.1:1/chats",
        "postgresql://ann:se#cret@127.0.0.1:1/chats",
        "postgresql://ann@127.0.0.1:1/chats?password=se%23cret",
        "postgresql://ann:se#cret@host:no-number/chats",
        "postgresql://ann:se#cret@[host/chats",
        "postgresql://ann:se%zzcret@host/chats",
    ],
)
async def test_no_error_contains_the_password(url: str) -> None:
    shown = ""

    async def use() -> None:
        nonlocal shown
        store = open_store(url)
        shown = repr(store.__dict__)
        try:
            await store.info(KEY)
        finally:
            await store.aclose()

    with pytest.raises((InvalidRequest, StoreError)) as raised:
        await use()
    assert raised.value.hint
    shown += f"{raised.value} {raised.value.hint} {raised.value.details}"
    shown += "".join(traceback.format_exception(raised.value, chain=True))
    # The source line of this test is part of a traceback, its URL is not.
    assert not any(part in shown for part in ("cret@", "se#cret", "se%23cret", "se%zzcret"))


async def test_servers_that_start_at_once_create_the_tables_once(postgres: Postgres) -> None:
    url = postgres.fresh()
    stores = [open_store(url) for _ in range(6)]
    await asyncio.gather(*[store.create(KEY) for store in stores])
    assert {(await store.info(KEY)).revision for store in stores} == {1}  # type: ignore[union-attr]  # it was created
    for store in stores:
        await store.aclose()


async def test_killed_writers_lose_nothing_that_was_acknowledged_and_write_nothing_twice(postgres: Postgres) -> None:
    url = postgres.fresh()
    acknowledged: dict[str, int] = {}
    for attempt in range(3):
        writers = {
            f"{attempt}-{n}": subprocess.Popen(
                [sys.executable, "-c", WRITER, url, f"{attempt}-{n}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            for n in range(3)
        }
        for name, writer in writers.items():
            assert writer.stdout is not None
            for _ in range(10):
                acknowledged[name] = int(writer.stdout.readline())
        for name, writer in writers.items():
            writer.send_signal(signal.SIGKILL)
            out, _ = writer.communicate(timeout=30)
            # The last line may be torn.
            acknowledged[name] = max([acknowledged[name], *map(int, out.splitlines()[:-1])])
    store = open_store(url)
    said: dict[str, list[int]] = {}
    for item in await store.latest(KEY):
        name, _, number = item.message.text.partition(" ")
        said.setdefault(name, []).append(int(number))
    assert said.keys() == acknowledged.keys()
    for name, numbers in said.items():
        assert numbers == [*range(len(numbers))]
        assert acknowledged[name] < len(numbers)
    assert await store.verify() == []
    await store.add_messages(KEY, [user("and on")])
    await store.aclose()
