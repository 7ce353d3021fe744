"""Tests batched logs when writers die, replies are lost, batches expire, and others write at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_kernel.core.errors import StoreCorrupt, StoreError
from agent_kernel.sessions.log import batched_log
from agent_kernel.sessions.log.batch_table import Batch, Data
from agent_kernel.sessions.log.batched_log import BatchedLog
from agent_kernel.sessions.log.log_store import Append
from tests.sessions.log.memory_table import MemoryTable
from tests.sessions.log.test_log_store import append, everything
from tests.sessions.talk import Clock


class Faulty(MemoryTable):
    """A table whose calls fail when a test says so: ``before`` their work, or ``after`` it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.before: set[str] = set()
        self.after: set[str] = set()

    def fail(self, place: set[str], name: str) -> None:
        if name in place:
            raise StoreError("The connection broke.")

    def append(self, batch: Batch) -> bool:
        self.fail(self.before, "append")
        done = super().append(batch)
        self.fail(self.after, "append")
        return done

    def rewrite(self, batches: Sequence[Batch]) -> bool:
        self.fail(self.before, "rewrite")
        done = super().rewrite(batches)
        self.fail(self.after, "rewrite")
        return done

    def create_blob(self, key: str, data: Data, size: int) -> bool:
        super().create_blob(key, data, size)
        return False if "create_blob" in self.after else self.media[key].data == data


@pytest.fixture
def table(clock: Clock) -> Faulty:
    return Faulty(clock)


def database_bytes(table: MemoryTable) -> bytes:
    """Return all bytes in the database."""
    return b"".join(batch.data.inline for batch in table.batches.values()) + b"".join(
        part for _, parts in table.pieces.values() for part in parts
    )


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_writer_that_dies_before_it_removed_what_it_replaced_leaves_it_to_the_next_server(
    table: Faulty, fault: str, size: int
) -> None:
    writer, reader = BatchedLog(table), BatchedLog(table)
    writer.commit("1", [append("s", body=b"forget" * size), append("t")])
    assert len(everything(reader)) == 2
    getattr(table, fault).add("rewrite")
    with pytest.raises(StoreError):
        writer.commit("2", [Append("a", "s", 1, b"all", replaces=True)])
    table.before.clear()
    table.after.clear()
    for log in (reader, BatchedLog(table)):
        assert [entry.body for entry in everything(log)] == [b"x", b"all"]
    next_server = BatchedLog(table)
    next_server.commit("3", [append("t", expect=2)])
    next_server.drop_blobs(set(), -5)
    assert b"forget" not in database_bytes(table)
    assert [entry.body for entry in everything(writer)] == [b"x", b"all", b"x"]


def test_a_writer_that_goes_on_removes_what_it_replaced_although_its_reply_was_lost(table: Faulty) -> None:
    log = BatchedLog(table)
    log.commit("1", [append("s", body=b"forget")])
    assert len(everything(log)) == 1
    table.after.add("append")
    with pytest.raises(StoreError):
        log.commit("2", [Append("a", "s", 1, b"all", replaces=True)])
    table.after.clear()
    assert [entry.body for entry in everything(log)] == [b"all"]
    log.commit("3", [append("t")])
    assert b"forget" not in database_bytes(table)
    assert log.commit("2", [Append("a", "s", 1, b"all", replaces=True)]) == {("a", "s"): 2}


def test_bytes_of_a_writer_that_died_before_its_commit_are_removed_after_a_while(table: Faulty, clock: Clock) -> None:
    log = BatchedLog(table)
    table.before.add("append")
    with pytest.raises(StoreError):
        log.commit("1", [append("s", body=b"large" * 100_000)])
    table.before.clear()
    log.commit("2", [append("s", body=b"other" * 100_000)])
    log.drop_blobs(set())
    assert len(table.pieces) == 2
    clock.now += 3601
    log.drop_blobs(set())
    assert len(table.pieces) == 1
    assert everything(log)[0].body == b"other" * 100_000


def test_batches_without_entries_may_expire_under_servers_that_know_them_and_that_do_not(table: Faulty) -> None:
    idle, busy = BatchedLog(table), BatchedLog(table)
    idle.commit("1", [append("s")])
    at = 1
    for number in range(20):
        ((_, at),) = busy.commit(f"b{number}", [Append("a", "s", at, b"all", replaces=True)]).items()
    assert [number for number, batch in table.batches.items() if not batch.expires] == [21]
    for number in range(1, 21):
        del table.batches[number]
    for log in (idle, BatchedLog(table)):
        assert log.commit(f"{id(log)}", [append("s", expect=at)]) == {("a", "s"): at + 1}
        at += 1
        assert [entry.position for entry in everything(log)] == [*range(21, at + 1)]


def test_a_table_that_was_emptied_or_restored_from_an_older_copy_is_an_error(table: Faulty) -> None:
    log = BatchedLog(table)
    for number in range(3):
        log.commit(f"{number}", [append("s", expect=number)])
    del table.batches[3]
    table.newest = 2
    for use in (lambda: log.read({}), lambda: log.commit("4", [append("s", expect=4)])):
        with pytest.raises(StoreCorrupt, match="lost acknowledged entries"):
            use()
    with pytest.raises(StoreCorrupt, match="lost acknowledged entries"):
        BatchedLog(table).read({"a": 3})


def test_servers_that_remove_entries_of_the_same_batches_at_the_same_moment_leave_the_others(clock: Clock) -> None:
    table = MemoryTable(clock)
    first = BatchedLog(table)
    for number in range(30):
        first.commit(f"{number}", [append(f"s{n}", expect=number and number * 5 - 4 + n) for n in range(5)])
    barrier = threading.Barrier(4)

    def replace_one(which: int) -> None:
        log = BatchedLog(table)
        everything(log)
        barrier.wait()
        log.commit(f"r{which}", [Append("a", f"s{which}", 146 + which, b"all", replaces=True)])

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(replace_one, range(4))]
    for log in (first, BatchedLog(table)):
        found = everything(log)
        assert [entry.position for entry in found if entry.session == "s4"] == [*range(5, 151, 5)]
        assert sorted(entry.position for entry in found if entry.session != "s4") == [151, 152, 153, 154]


def test_a_reader_gets_what_is_left_of_a_batch_whose_pieces_were_replaced_while_it_read(table: Faulty) -> None:
    log = BatchedLog(table)
    log.commit("1", [append("s", body=b"gone" * 50_000), append("t", body=b"here" * 50_000)])
    stale = table.batches[1]
    log.commit("2", [Append("a", "s", 1, b"all", replaces=True)])
    assert table.get_pieces(stale.data.token, stale.data.count) is None
    fresh, table.batches[1] = table.batches[1], stale
    late = BatchedLog(table)
    page = table.tail(0)
    table.batches[1] = fresh
    table.tail = lambda after: page if not after else MemoryTable.tail(table, after)  # type: ignore[method-assign]
    assert [(entry.session, len(entry.body)) for entry in late.read({}).entries] == [("t", 200_000), ("s", 3)]


def test_bytes_without_their_pieces_are_an_error(table: Faulty) -> None:
    log = BatchedLog(table)
    log.commit("1", [append("s", body=b"large" * 50_000)])
    log.put_blob("a", "d", b"x")
    table.pieces.clear()
    with pytest.raises(StoreCorrupt, match="without its bytes"):
        BatchedLog(table).read({})
    with pytest.raises(StoreCorrupt, match="without its bytes"):
        log.get_blob("a", "d")


def test_equal_names_with_different_bytes_are_not_mixed_and_a_lost_reply_loses_no_bytes(
    table: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = BatchedLog(table)
    table.after.add("create_blob")  # it is created, and the answer is that of a second try
    log.put_blob("a", "d", b"1" * 3_000_000)
    assert log.get_blob("a", "d") == b"1" * 3_000_000
    # Another server stores other bytes under the name; when it looked, there were none.
    count, answers = len(table.pieces), iter([False, True])
    monkeypatch.setattr(table, "touch_blob", lambda key: next(answers))
    table.after.clear()
    BatchedLog(table).put_blob("a", "d", b"2" * 3_000_000)
    assert log.get_blob("a", "d") == b"1" * 3_000_000
    assert len(table.pieces) == count


def test_only_the_latest_commits_are_remembered(table: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_log, "COMMITS_KEPT", 5)
    log = BatchedLog(table)
    for number in range(20):
        log.commit(f"{number}", [append("s", expect=number)])
    assert [*log._index.commits] == [f"{number}" for number in range(15, 20)]
    assert log.commit("19", [append("s", expect=19)]) == {("a", "s"): 20}


def test_a_commit_gives_up_when_others_are_always_first(table: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_log, "MAX_ATTEMPTS", 5)
    monkeypatch.setattr(Faulty, "append", lambda self, batch: False)
    with pytest.raises(StoreError, match="other servers kept writing"):
        BatchedLog(table).commit("1", [append("s", body=b"large" * 50_000)])
    assert table.pieces == {}
