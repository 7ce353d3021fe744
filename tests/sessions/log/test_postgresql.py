"""Tests a real PostgreSQL that stops, has a newer schema or does not exist; and that its password is never shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.sessions.log.message_bus import Post
from agent_kernel.sessions.log.postgresql import MARK_CHARS, SETUP_LOCK, read_sql
from agent_kernel.sessions.store.store_url import open_store
from tests.sessions.log.failed_use import text_of_failed_use
from tests.sessions.log.servers import Postgres
from tests.sessions.talk import KEY

pytestmark = pytest.mark.stores
ROOT = Path(__file__).parents[3]


def test_the_constants_in_files_of_sql_are_those_of_the_program() -> None:
    messages, counts = read_sql("postgresql_messages.sql"), read_sql("postgresql_counts.sql")
    assert f"hashtextextended(place, {SETUP_LOCK})" in messages
    assert f"hashtextextended(place, {SETUP_LOCK + 1})" in counts
    assert f", {MARK_CHARS}) AS mark" in messages


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
    shown = await text_of_failed_use(url)
    assert not any(part in shown for part in ("cret@", "se#cret", "se%23cret", "se%zzcret"))


async def test_servers_that_start_at_once_create_the_tables_once(postgres: Postgres) -> None:
    url = postgres.fresh()
    stores = [open_store(url) for _ in range(6)]
    await asyncio.gather(*[store.create(KEY) for store in stores])
    assert {(await store.info(KEY)).revision for store in stores} == {1}  # type: ignore[union-attr]  # it was created
    for store in stores:
        await store.aclose()


async def test_a_schema_of_the_url_is_created_and_separates_stores(postgres: Postgres) -> None:
    address = f"{postgres.url}{'&' if '?' in postgres.url else '?'}schema="
    first, second = open_store(f"{address}Chats_of_Ann"), open_store(f"{address}chats_of_bob")
    await first.create(KEY)
    assert await second.info(KEY) is None
    again = open_store(f"{address}Chats_of_Ann")
    assert await again.info(KEY) is not None
    bus = again.bus()  # type: ignore[attr-defined]  # of a SharedStore
    bus.send([Post(("ann", "news"), b"1", 60.0)])
    bus.close()
    for part in (first, second, again):
        await part.aclose()
    postgres.run('SELECT 1 / count(*) FROM "Chats_of_Ann".agent_kernel_entries, "Chats_of_Ann".agent_kernel_messages')


async def test_a_user_without_the_right_to_create_schemas_can_use_one_that_exists(postgres: Postgres) -> None:
    postgres.run("CREATE ROLE guest LOGIN; CREATE SCHEMA guests AUTHORIZATION guest")
    address = postgres.url.replace("postgres:@", "guest@").replace("//postgres@", "//guest@")
    assert "guest" in address
    store = open_store(f"{address}{'&' if '?' in address else '?'}schema=guests")
    await store.create(KEY)
    await store.aclose()
    other = open_store(f"{address}{'&' if '?' in address else '?'}schema=elsewhere")
    with pytest.raises(StoreError, match="permission denied"):
        await other.info(KEY)
    await other.aclose()


@pytest.mark.parametrize("schema", ["", "a%20b", "a%22b", "a.b"])
def test_a_schema_with_other_characters_is_refused(schema: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read") as raised:
        open_store(f"postgresql://ann@127.0.0.1:1/chats?schema={schema}")
    assert "schema=NAME" in raised.value.hint
