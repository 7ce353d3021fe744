"""Tests a real Redis that is killed, emptied, used as a cache or part of a cluster; and that its password is never
shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_kernel.core.errors import StoreCorrupt, StoreError
from agent_kernel.core.messages import user
from agent_kernel.sessions.log.log_store import Append
from agent_kernel.sessions.log.redis import RedisLog
from agent_kernel.sessions.store.store_url import open_store
from tests.sessions.log.failed_use import text_of_failed_use
from tests.sessions.log.servers import Redis
from tests.sessions.talk import KEY

pytestmark = pytest.mark.stores
ROOT = Path(__file__).parents[3]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Redis]:
    """A server for the use of one test."""
    server = Redis(tmp_path)
    yield server
    server.stop()


async def test_a_killed_server_keeps_what_was_acknowledged_and_the_store_goes_on(own: Redis) -> None:
    store = open_store(own.fresh())
    for number in range(20):
        await store.add_messages(KEY, [user(f"{number}")])
    own.kill()
    with pytest.raises(StoreError, match="cannot be used"):
        await store.info(KEY)
    own.start()
    await store.add_messages(KEY, [user("20")])
    assert [item.message.text for item in await store.latest(KEY)] == [f"{number}" for number in range(21)]
    assert await store.verify() == []
    await store.aclose()


async def test_a_server_that_lost_its_entries_is_an_error_and_never_an_old_conversation(own: Redis) -> None:
    store = open_store(own.fresh())
    await store.add_messages(KEY, [user("gone")])
    assert len(await store.latest(KEY)) == 1
    with own.client() as client:
        client.flushall()
    for call in (store.info, store.create):
        with pytest.raises(StoreCorrupt, match="lost acknowledged entries") as raised:
            await call(KEY)
        assert "appendonly" in raised.value.hint
    await store.aclose()


async def test_keys_of_a_newer_version_and_a_server_that_deletes_keys_are_refused(own: Redis) -> None:
    with own.client() as client:
        client.set("{newer}:version", 99)
        newer = open_store(f"redis://127.0.0.1:{own.port}/0?prefix=newer")
        with pytest.raises(StoreCorrupt, match="newer agent-kernel"):
            await newer.info(KEY)
        await newer.aclose()
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
    cache = open_store(own.fresh())
    with pytest.raises(StoreError, match="maxmemory-policy"):
        await cache.info(KEY)
    await cache.aclose()


def test_a_full_server_writes_all_of_a_commit_or_nothing(own: Redis) -> None:
    log = RedisLog(own.fresh())
    log.commit("1", [Append("a", "s", 0, b"x")])
    with own.client() as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreError, match="used memory > 'maxmemory'"):
            log.commit("2", [Append("a", "s", 1, b"y"), Append("b", "s", 0, b"y")])
        client.config_set("maxmemory", "0")
    assert [entry.body for entry in log.read({}).entries] == [b"x"]
    assert log.commit("2", [Append("a", "s", 1, b"y")]) == {("a", "s"): 2}
    log.close()


def test_a_read_of_one_namespace_makes_the_server_do_no_more_when_there_are_more_users(own: Redis) -> None:
    log = RedisLog(own.fresh())
    for number in range(40):
        log.commit(f"{number}", [Append(f"user{number}", "s", 0, b"x")])
    seen = {f"user{number}": 1 for number in range(40)}
    assert log.read(seen).entries == []
    with own.client() as client:
        client.config_resetstat()
        assert log.read(seen, ["user7"]).entries == []
        calls = {name: facts["calls"] for name, facts in client.info("commandstats").items() if "config" not in name}
    log.close()
    assert calls == {"cmdstat_evalsha": 1, "cmdstat_time": 1, "cmdstat_hget": 1}


async def test_servers_of_a_cluster_keep_a_log_together(tmp_path: Path) -> None:
    nodes: list[Redis] = []
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            nodes.append(Redis(tmp_path / name, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
        clients = [node.client() for node in nodes]
        for half, client in enumerate(clients):
            client.execute_command("CLUSTER", "ADDSLOTS", *range(half * 8192, (half + 1) * 8192))
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        deadline = time.monotonic() + 20
        while not all(_is_whole(client.execute_command("CLUSTER INFO")) for client in clients):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for client in clients:
            client.close()
        # Two prefixes whose keys are on different nodes, each through both nodes.
        for prefix in ("a", "b", "c"):
            stores = [open_store(f"redis://127.0.0.1:{node.port}?prefix={prefix}") for node in nodes]
            for store in stores:
                await store.add_messages(KEY, [user("here")])
            for store in stores:
                assert len(await store.latest(KEY)) == 2
                await store.aclose()
    finally:
        for node in nodes:
            node.stop()


def _is_whole(info: dict[str, str]) -> bool:
    return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "2"


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:se%23cret@127.0.0.1:1/0",
        "redis://ann:se#cret@127.0.0.1:1/0",
        "redis://ann:se?cret@127.0.0.1:1/0",
        "redis://:1/cret@127.0.0.1:1/0",
        "redis://ann:se%23cret@host:no-number/0",
        "redis://ann:se%23cret@[host/0",
        "redis://ann@127.0.0.1:1/0?password=se%23cret",
        "rediss://ann:se%23cret@127.0.0.1:1/0",
    ],
)
async def test_no_error_contains_the_password(url: str) -> None:
    shown = await text_of_failed_use(url)
    assert not any(part in shown for part in ("cret@", "se#cret", "se%23cret", "se?cret", "1/cret"))


async def test_a_password_opens_the_store_and_a_wrong_one_is_refused(own: Redis) -> None:
    with own.client() as client:
        client.execute_command("ACL", "SETUSER", "ann", "on", ">pa ss/word", "~*", "&*", "+@all")
        client.config_set("requirepass", "other")
    right = open_store(f"redis://ann:pa%20ss%2Fword@127.0.0.1:{own.port}/0")
    assert await right.create(KEY) is not None
    await right.aclose()
    wrong = open_store(f"redis://ann:guessed-word@127.0.0.1:{own.port}/0")
    with pytest.raises(StoreError) as raised:
        await wrong.info(KEY)
    assert "guessed-word" not in f"{raised.value}"
    await wrong.aclose()
