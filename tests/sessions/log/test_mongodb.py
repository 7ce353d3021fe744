"""Tests the log in MongoDB when replies are lost, connections break and writers die, with a FAKE MongoDB; and that its
password is never shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import StoreCorrupt, StoreError
from agent_kernel.sessions.log.log_store import Append
from agent_kernel.sessions.store.store_url import open_log
from tests.sessions.log.failed_use import text_of_failed_use
from tests.sessions.log.test_log_store import append, everything

pytestmark = pytest.mark.stores
ROOT = Path(__file__).parents[3]


@pytest.fixture
def fake() -> Iterator[Any]:
    """A fake for the use of one test."""
    from tests.sessions.log.fake_mongodb import FakeMongo

    server = FakeMongo()
    yield server
    server.stop()


@pytest.mark.parametrize("losing", ["find", "findAndModify", "insert", "update", "delete"])
def test_a_command_whose_reply_was_lost_has_happened_once(fake: Any, losing: str) -> None:
    log = open_log(fake.fresh())
    log.commit("1", [append("s")])
    fake.losing, fake.lose_replies = losing, 1
    log.put_blob("a", "d", b"bytes")
    assert log.commit("2", [append("s", expect=1, body=b"once")]) == {("a", "s"): 2}
    assert log.commit("3", [Append("a", "s", 2, b"all", replaces=True)]) == {("a", "s"): 3}
    assert [(entry.position, entry.body) for entry in everything(log)] == [(3, b"all")]
    assert log.get_blob("a", "d") == b"bytes"
    assert log.drop_blobs(set(), -5) == 5
    assert fake.lose_replies == 0, "the fault happened"
    log.close()


def test_a_server_that_was_away_is_an_error_and_the_log_goes_on_when_it_is_back(fake: Any) -> None:
    url = fake.fresh()
    log = open_log(f"{url}?serverSelectionTimeoutMS=300")
    log.commit("1", [append("s")])
    fake.stop()
    with pytest.raises(StoreError, match="cannot be used"):
        log.commit("2", [append("s", expect=1)])
    fake.restart()
    assert log.commit("2", [append("s", expect=1)]) == {("a", "s"): 2}
    log.close()


def test_a_commit_of_a_writer_that_died_before_it_was_copied_is_read_and_copied_by_the_next(fake: Any) -> None:
    url = fake.fresh()
    log = open_log(url)
    log.commit("1", [append("s", body=b"one")])
    log.commit("2", [append("s", expect=1, body=b"two")])
    batches = fake.kept[url.rpartition("/")[2]]["agent_kernel_batches"]
    batches.delete_one({"_id": 2})
    for late in (open_log(url), open_log(url)):
        assert [entry.body for entry in everything(late)] == [b"one", b"two"]
        late.close()
    other = open_log(url)
    assert other.commit("3", [append("t")]) == {("a", "t"): 3}
    assert [document["_id"] for document in batches.find()] == [1, 2, 3]
    assert len(everything(log)) == 3
    for one in (log, other):
        one.close()


def test_a_newer_version_is_refused_and_servers_that_start_at_once_create_one_head(fake: Any) -> None:
    url = fake.fresh()
    logs = [open_log(url) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert [tail.entries for tail in pool.map(lambda log: log.read({}), logs)] == [[]] * 6
    head = fake.kept[url.rpartition("/")[2]]["agent_kernel_head"]
    assert head.count_documents({}) == 1
    head.update_one({}, {"$set": {"version": 99}})
    newer = open_log(url)
    with pytest.raises(StoreCorrupt, match="newer agent-kernel"):
        newer.read({})
    for one in [*logs, newer]:
        one.close()


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://ann:se%23cret@127.0.0.1:1/chats?serverSelectionTimeoutMS=100",
        "mongodb://ann:se#cret@127.0.0.1:1/chats",
        "mongodb://ann:se/cret@127.0.0.1:1/chats",
        "mongodb://ann:se%23cret@host:no-number/chats",
        "mongodb://ann:se%23cret@[host/chats",
        "mongodb://ann:se%zzcret@host/chats",
        "mongodb://ann@127.0.0.1:1/chats?password=se%23cret",
        "mongodb+srv://ann:se%zzcret@host.invalid/chats",
    ],
)
async def test_no_error_contains_the_password(url: str) -> None:
    shown = await text_of_failed_use(url)
    assert not any(part in shown for part in ("cret@", "se#cret", "se%23cret", "se/cret", "se%zzcret"))


def test_a_prefix_separates_logs_in_one_database(fake: Any) -> None:
    url = fake.fresh()
    first, second = open_log(f"{url}?prefix=ann"), open_log(f"{url}?prefix=bob")
    first.commit("1", [append("s")])
    assert len(everything(first)) == 1
    assert everything(second) == []
    for log in (first, second):
        log.close()
