"""Keeps a copy of the rows of a shared log in a private SQLite database. It applies the changes of other servers to the
copy, and publishes this server's changes in the log.

One entry of the log contains the changes of one transaction to one session. If the transaction deleted something, the
entry instead contains all rows of the session and replaces its earlier entries, so that the log does not keep what
people deleted.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from agent_kernel.core.errors import StoreError
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.log.log_store import ENCRYPTED, Append, Entry, LogConflict, LogStore, Stream, Tail
from agent_kernel.sessions.store import row_changes
from agent_kernel.sessions.store.change_recorder import ChangeRecorder, count_changes
from agent_kernel.sessions.store.row_changes import (
    KEYS,
    SESSION_TABLES,
    WITHOUT_ROWID,
    RowChange,
    session_column,
    shared_columns,
)
from agent_kernel.sessions.tables import blobs, search_texts

T = TypeVar("T")
MAX_AGE_S = 10.0
"""Maximum age, in seconds, of the last read from the log on which a write relies; the log then checks whether that read
is still current. A write after a longer time reads first, so that ``Replica.offset`` follows the clock of the
database."""
QUIET_S = 1.0
"""Number of seconds for which writes read first after another server wrote at the same moment: during this time,
reading before a write is cheaper than writing twice."""
MIN_CHANGES, CHANGES_PER_ROW = 400, 4
"""All rows of a session are written again in one entry when its entries together have more than MIN_CHANGES +
CHANGES_PER_ROW * (rows of the session) changes."""

_BOUND_SESSION = 3
"""Index of ``session`` among the columns of ``bindings``."""


@dataclass(slots=True)
class _Head:
    """The end of a stream (see ``log_store.Stream``): the position of its last entry, the number of changes in its
    entries, and the number of its rows when they were last written in one entry."""

    position: int = 0
    changes: int = 0
    rows: int = 0

    @property
    def is_long(self) -> bool:
        return self.changes > MIN_CHANGES + CHANGES_PER_ROW * self.rows


class Replica:
    """A copy of the rows of a shared log, used on the store's thread only. ``offset`` is the time of the shared
    database minus ``time.monotonic()``, in seconds.

    A transaction that writes may run without ``update`` before it (``begin_unread``). The log then checks whether the
    copy was current. ``sent`` is true once the transaction has begun to write to the log."""

    def __init__(self, log: LogStore) -> None:
        self._log = log
        self.offset = time.time() - time.monotonic()
        self._columns: dict[str, list[str]] = {}
        self._recorder = ChangeRecorder({})
        self._seen: dict[str, int] = {}
        self._own: set[tuple[str, int]] = set()
        self._heads: dict[Stream, _Head] = {}
        self._published: list[tuple[Stream, _Head]] = []
        self._records = False
        self._read_at = self._conflict_at = -MAX_AGE_S
        self._read_times: dict[str, float] = {}
        self._unread = self._has_guessed = False
        self._among: frozenset[str] | None = None
        self.sent = False

    def prepare(self, db: sqlite3.Connection) -> None:
        """Start with an empty database, and forget which entries were read."""
        self._columns = {table: shared_columns(db, table) for table in KEYS}
        self._recorder = ChangeRecorder(self._columns)
        self._seen, self._heads, self._records = {}, {}, False
        self._own.clear()

    # ------------------------------------------------------------------------------------------- reading

    def select(self, calls: Iterable[Collection[str]]) -> None:
        """Set which namespaces the next calls use. ``calls`` has the namespaces of each call; an empty collection means
        all namespaces. Only these namespaces are read from the log, so that the duration of a call does not depend on
        the data of other users. The copy of the other namespaces stays as it was at the last read."""
        groups = [*calls]
        self._among = frozenset(chain.from_iterable(groups)) if all(groups) else None

    def _read_log(self) -> Tail:
        return self._log.read(self._seen, self._among)

    def update(self, db: sqlite3.Connection) -> bool:
        """Apply the changes that other servers have written since the last call, and return whether there were any.
        Raises StoreError if the shared database cannot be read."""
        self._unread = self.sent = False
        self._recorder.begin()
        more, found = True, False
        while more:
            tail = self._read_log()
            self.offset, more = tail.now - time.monotonic(), tail.more
            if tail.entries:
                found |= self._apply(db, tail.entries)
        if self._among is None:
            self._read_at = time.monotonic()
        else:
            self._read_times |= dict.fromkeys(self._among, time.monotonic())
        if not self._records:
            self._recorder.start(db)
            self._records = True
        return found

    def begin_unread(self) -> bool:
        """Begin a transaction without reading the log before it, and return True, if the copy is probably current.
        Otherwise return False: the caller calls ``update`` first."""
        self._recorder.begin()
        now = time.monotonic()
        may = self._log.compares and self._records and now - self._conflict_at >= QUIET_S
        may = may and now - self._last_read() < MAX_AGE_S
        self._unread, self._has_guessed, self.sent = may, False, False
        return may

    def _last_read(self) -> float:
        """Return when the namespaces that the next calls use were last read, by the clock ``time.monotonic``."""
        times = [self._read_times.get(name, self._read_at) for name in self._among or ()]
        return max(self._read_at, min(times, default=self._read_at))

    def run(self, work: Callable[[sqlite3.Connection], T], db: sqlite3.Connection) -> T:
        """Run ``work``, which is one of the writes of a transaction. If the transaction began without ``update``, and
        ``work`` changes nothing or raises an error, record that its result may come from outdated rows, because the log
        checks only the streams to which the transaction writes."""
        if not self._unread:
            return work(db)
        before = count_changes(db)
        try:
            result = work(db)
        except BaseException:
            self._has_guessed = True
            raise
        self._has_guessed |= count_changes(db) == before
        return result

    def _apply(self, db: sqlite3.Connection, entries: Sequence[Entry]) -> bool:
        fresh = [entry for entry in entries if (entry.namespace, entry.position) not in self._own]
        counts = []
        if fresh:
            db.execute("BEGIN IMMEDIATE")
            try:
                counts = [self._apply_entry(db, entry) for entry in fresh]
                if self._records:
                    self._recorder.clear(db)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        for entry, count in zip(fresh, counts, strict=True):
            head = self._heads.setdefault((entry.namespace, entry.session), _Head())
            if entry.replaces:
                head.changes, head.rows = 0, count
            head.position, head.changes = max(head.position, entry.position), head.changes + count
        for entry in entries:
            self._seen[entry.namespace] = entry.position
            self._own.discard((entry.namespace, entry.position))
        return bool(fresh)

    def _apply_entry(self, db: sqlite3.Connection, entry: Entry) -> int:
        stream, unnamed = (entry.namespace, entry.session), set[str]()
        place = db.execute("SELECT rowid FROM sessions WHERE namespace = ? AND id = ?", stream).fetchone()
        if entry.replaces:
            unnamed = self._delete_stream(db, entry)
        if entry.body.startswith(ENCRYPTED):
            raise StoreError(f"{self._log.name} is encrypted.", hint="Add #key=FILE to the URL of the store.")
        changes = row_changes.decode(entry.body)
        for change in changes:
            unnamed |= self._apply_change(db, entry.namespace, change)
        if entry.replaces and place:
            # The session keeps its rowid, which determines its position among sessions that changed at the same moment.
            db.execute("UPDATE sessions SET rowid = ? WHERE namespace = ? AND id = ?", (*place, *stream))
        if unnamed:
            blobs.remove_unnamed(db, entry.namespace, sorted(unnamed))
        return len(changes)

    def _apply_change(self, db: sqlite3.Connection, namespace: str, change: RowChange) -> set[str]:
        """Apply a change, and return the hashes of media bytes to which no row may refer any more."""
        table, columns = change.table, self._columns[change.table]
        where = " AND ".join(f"{name} IS ?" for name in KEYS[table])
        if change.event == "d":
            db.execute(f"DELETE FROM {table} WHERE {where}", change.old)
            return {change.old[KEYS[table].index("hash")]} if table == "media" else set()
        row = dict(zip(columns, change.new, strict=False))
        if table in ("media", "files") and row["hash"]:
            mime, size = change.new[len(columns) :] if table == "media" else (row["mime"], row["size"])
            if mime is not None:
                blobs.insert_blob_row(db, namespace, row["hash"], mime=mime, size=size)
        if change.event == "i":
            # INSERT OR REPLACE is used, because the statement of the writer may have replaced a row too: a binding or a
            # grant replaces an earlier one.
            places = ", ".join("?" * len(columns))
            db.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({places})", [*row.values()])
        else:
            sets = ", ".join(f"{name} = ?" for name in columns)
            db.execute(f"UPDATE {table} SET {sets} WHERE {where}", [*row.values(), *change.old])
        return set()

    def _delete_stream(self, db: sqlite3.Connection, entry: Entry) -> set[str]:
        """Delete all rows of the stream to which the entry belongs, and return the hashes of bytes to which these rows
        referred."""
        if not entry.session:
            db.execute("DELETE FROM bindings WHERE namespace = ?", (entry.namespace,))
            return set()
        stream = (entry.namespace, entry.session)
        query = "SELECT hash FROM {} WHERE namespace = ? AND session = ?"
        hashes = {
            digest for table in ("media", "files") for (digest,) in db.execute(query.format(table), stream) if digest
        }
        search_texts.delete_session_texts(db, SessionKey(*stream))
        for table in SESSION_TABLES:
            db.execute(f"DELETE FROM {table} WHERE namespace = ? AND {session_column(table)} = ?", stream)
        return hashes

    # ------------------------------------------------------------------------------------------- writing

    def publish(self, db: sqlite3.Connection) -> None:
        """Write the changes of the open transaction to the log, before the transaction is committed in the copy. Raises
        LogConflict if another server has changed one of the sessions first, and StoreError."""
        self._published = []
        if self._unread and self._has_guessed and self._read_log().entries:
            raise LogConflict
        found = self._recorder.read(db)
        if not found:
            return
        if self._among is not None and not self._among.issuperset(name for name, _ in found):
            raise RuntimeError("A call has changed rows of a namespace that it did not name.")
        appends, heads = [], []
        for stream, changes in found.items():
            before = self._heads.get(stream, _Head())
            head = _Head(0, before.changes + len(changes), before.rows)
            self._keep_bytes(stream[0], changes)
            replaces = head.is_long or any(change.erases for change in changes)
            rows = [*self._snapshot(db, stream)] if replaces else changes
            if replaces:
                head.changes = head.rows = len(rows)
            appends.append(Append(*stream, before.position, row_changes.encode(rows), replaces))
            heads.append((stream, head))
        appends += [
            Append(*stream, self._heads.get(stream, _Head()).position, None)
            for stream in _bound_sessions(found)
            if stream not in found
        ]
        after = {name: self._seen.get(name, 0) for name, _ in found} if self._unread else None
        self.sent = True
        try:
            positions = self._log.commit(uuid.uuid4().hex, appends, after)
        except LogConflict:
            self._conflict_at = time.monotonic()
            raise
        for stream, head in heads:
            head.position = positions[stream]
        self._published = heads
        self._recorder.clear(db)

    def settle(self) -> None:
        """Record that the local transaction whose changes ``publish`` wrote to the log is committed. Otherwise
        ``update`` would read these changes from the log and apply them a second time."""
        for stream, head in sorted(self._published, key=lambda one: one[1].position):
            self._heads[stream] = head
            if head.position == self._seen.get(stream[0], 0) + 1:
                self._seen[stream[0]] = head.position
            else:
                self._own.add((stream[0], head.position))
        self._published = []

    def _keep_bytes(self, namespace: str, changes: Sequence[RowChange]) -> None:
        """Mark the bytes to which changed rows refer as in use, so that the log does not delete them. For example,
        the rows of a fork refer to bytes that the fork did not store."""
        for table in ("media", "files"):
            at = self._columns[table].index("hash")
            digests = {change.new[at] for change in changes if change.table == table and change.event != "d"} - {""}
            if digests:
                self._log.touch_blobs(namespace, digests)

    def _snapshot(self, db: sqlite3.Connection, stream: Stream) -> Iterator[RowChange]:
        """Yield all rows of a stream as insertions, in the order in which the rows were inserted."""
        for table in ("bindings",) if not stream[1] else SESSION_TABLES:
            columns, source = ", ".join(f"t.{name}" for name in self._columns[table]), f"{table} AS t"
            if table == "media":
                columns += ", b.mime, b.size"
                source += " LEFT JOIN blobs AS b ON b.namespace = t.namespace AND b.hash = t.hash"
            where = "t.namespace = ?" if not stream[1] else f"t.namespace = ? AND t.{session_column(table)} = ?"
            order = "" if table in WITHOUT_ROWID else " ORDER BY t.rowid"
            rows = db.execute(f"SELECT {columns} FROM {source} WHERE {where}{order}", stream[: 1 + bool(stream[1])])
            yield from (RowChange(table, "i", (), row) for row in rows)


def _bound_sessions(found: Mapping[Stream, Sequence[RowChange]]) -> list[Stream]:
    """Return the sessions to which the new rows of ``found`` bind notebooks. Before the log writes these bindings, it
    has to check that each of the sessions still exists."""
    return sorted(
        {
            (namespace, change.new[_BOUND_SESSION])
            for (namespace, session), changes in found.items()
            if not session
            for change in changes
            if change.table == "bindings" and change.event != "d"
        }
    )
