"""The contract of a BatchTable, on which ``BatchedLog`` relies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent_kernel.sessions.log.batch_table import INLINE_BYTES, REWRITTEN_AT_ONCE, Batch, BatchTable, Data
from agent_kernel.sessions.log.dynamodb import DynamoTable
from agent_kernel.sessions.log.mongodb import MongoTable
from tests.sessions.log.memory_table import MemoryTable
from tests.sessions.talk import Clock

TABLES = ["memory", *(pytest.param(name, marks=pytest.mark.stores) for name in ("mongo", "dynamo"))]


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, clock: Clock) -> Iterator[BatchTable]:
    made: BatchTable
    if request.param == "memory":
        made = MemoryTable(clock)
    else:
        url = request.getfixturevalue(request.param).fresh()
        made = MongoTable(url) if request.param == "mongo" else DynamoTable(url)
    yield made
    made.close()


def batch(number: int, data: bytes = b"x") -> Batch:
    return Batch(number, f"commit {number}", Data(data))


def every(table: BatchTable, after: int = 0) -> list[Batch]:
    found: list[Batch] = []
    more = True
    while more:
        page = table.tail(found[-1].number if found else after)
        found += page.batches
        more = page.more
    assert page.newest == max([after, *(one.number for one in found)])
    return found


def test_a_batch_is_appended_behind_the_newest_one_only(table: BatchTable) -> None:
    assert every(table) == []
    assert not table.append(batch(2))
    assert table.append(batch(1))
    assert not table.append(batch(1, b"other"))
    assert not table.append(batch(3))
    assert table.append(batch(2))
    assert every(table) == [batch(1), batch(2)]
    assert every(table, 1) == [batch(2)]
    assert every(table, 2) == []
    assert table.fetch([2, 1, 7]) == [batch(1), batch(2)]


def test_a_batch_is_rewritten_if_nobody_else_did(table: BatchTable) -> None:
    for number in range(1, 4):
        table.append(batch(number))
    first, stale = (replace(batch(1, text), version=1) for text in (b"first", b"stale"))
    assert table.rewrite([first, replace(batch(2, b""), version=1, expires=True)])
    assert not table.rewrite([stale])
    assert table.fetch([1]) == [first]
    # Whether the other one is rewritten then is left to the table: it is fetched again.
    assert not table.rewrite([stale, replace(batch(3, b"new"), version=1)])
    assert table.fetch([1]) == [first]
    assert not table.rewrite([replace(batch(9), version=1)]), "there is none"
    assert [one.expires for one in every(table)] == [False, True, False]


def test_as_many_large_batches_as_one_call_may_get_are_rewritten(table: BatchTable) -> None:
    numbers = range(1, REWRITTEN_AT_ONCE + 1)
    for number in numbers:
        assert table.append(batch(number, b"y" * INLINE_BYTES))
    fresh = [replace(batch(number, b"z" * INLINE_BYTES), version=1) for number in numbers]
    assert table.rewrite(fresh)
    assert table.fetch(numbers) == fresh
    assert every(table) == fresh


def test_pieces_are_there_as_a_whole_or_not(table: BatchTable) -> None:
    data = bytes(range(256)) * 40_000
    count = table.put_pieces("token", data)
    assert table.get_pieces("token", count) == data
    assert table.get_pieces("token", count + 1) is None
    assert table.get_pieces("other", 1) is None
    assert [token for token, _ in table.old_pieces(table.now() - 60)] == []
    ((token, old),) = set(table.old_pieces(table.now() + 60))
    table.delete_pieces(token, old or count)
    assert table.get_pieces("token", count) is None
    assert [*table.old_pieces(table.now() + 60)] == []


def test_a_medium_that_was_touched_is_not_deleted(table: BatchTable, clock: Clock) -> None:
    assert not table.touch_blob("k")
    assert table.create_blob("k", Data(token="t", count=1), 5)
    assert not table.create_blob("k", Data(token="u", count=1), 6)
    assert table.touch_blob("k")
    ((key, blob),) = table.blobs()
    assert (key, blob.data, blob.size) == ("k", Data(token="t", count=1), 5)
    assert -2 < table.now() - blob.stored < 60
    assert not table.delete_blob("k", table.now() - 60)
    assert table.get_blob("k") == blob
    assert table.delete_blob("k", table.now() + 60)
    assert table.delete_blob("k", table.now() + 60)
    assert table.get_blob("k") is None
