"""Finds faults in the tables of a session. Only reads; ``repair.py`` handles each kind of fault."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import Message
from agent_kernel.core.session import SessionKey, StoreFault
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import blobs, files, items, segments
from agent_kernel.sessions.tables.rows import HERE, pair

OF_SESSION = (
    *("items", "turns", "media", "segments", "branches", "dropped_branches", "summaries", "summary_claims"),
    *("openings", "bindings", "files"),
)
"""Tables with rows of a session; each has the columns ``namespace`` and ``session``."""
JSON_OF_SESSION = ("tags", "metadata", "context", "imported")
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, AgentKernelError)
"""Exceptions that decoding foreign or damaged data may raise."""


@dataclass(frozen=True, slots=True)
class LocatedFault:
    """A fault and its place. ``facts`` are the values that the repair of this kind of fault needs, such as the table,
    column, row, turn or segment."""

    key: SessionKey
    kind: str
    detail: str
    facts: dict[str, Any] = field(default_factory=dict)

    def to_fault(self, mended: str = "") -> StoreFault:
        return StoreFault(self.key.namespace, self.key.id, self.kind, self.detail, mended)


def find_faults(db: sqlite3.Connection, namespace: str | None) -> Iterator[LocatedFault]:
    """Yield the faults of a namespace, or of all namespaces (None). Faults of rows without a session come first, since
    their repair may create sessions, which are then checked too."""
    yield from _without_session(db, namespace)
    rows = db.execute(
        "SELECT namespace, id FROM sessions WHERE ?1 IS NULL OR namespace = ?1 ORDER BY namespace, id", (namespace,)
    ).fetchall()
    for row in rows:
        yield from SessionCheck(db, SessionKey(*row)).faults()
    yield from _unused_blob_faults(db, namespace)


def check_file(db: sqlite3.Connection) -> list[StoreFault]:
    """Return the faults of the database file itself, in its pages and indexes."""
    rows = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
    return [] if rows == ["ok"] else [StoreFault("", "", "file", row) for row in rows]


def _without_session(db: sqlite3.Connection, namespace: str | None) -> Iterator[LocatedFault]:
    for table in OF_SESSION:
        rows = db.execute(
            f"SELECT namespace, session, count(*) FROM {table} AS t WHERE (?1 IS NULL OR namespace = ?1) AND NOT EXISTS"
            " (SELECT 1 FROM sessions AS s WHERE s.namespace = t.namespace AND s.id = t.session)"
            " GROUP BY namespace, session",
            (namespace,),
        ).fetchall()
        for *place, count in rows:
            detail = f"{count} row(s) of {table} belong to no session"
            yield LocatedFault(SessionKey(*place), "no_session", detail, {"table": table})


def _unused_blob_faults(db: sqlite3.Connection, namespace: str | None) -> Iterator[LocatedFault]:
    """Yield a fault for each blob that no item and no file refers to."""
    rows = db.execute(
        "SELECT namespace, hash, size FROM blobs AS b WHERE (?1 IS NULL OR namespace = ?1) AND NOT EXISTS"
        " (SELECT 1 FROM media AS m WHERE m.namespace = b.namespace AND m.hash = b.hash) AND NOT EXISTS"
        " (SELECT 1 FROM files AS f WHERE f.namespace = b.namespace AND f.hash = b.hash)",
        (namespace,),
    ).fetchall()
    for space, digest, size in rows:
        detail = f"no item or file refers to the stored bytes {digest} ({size} bytes)"
        yield LocatedFault(SessionKey(space, "-"), "unused_bytes", detail, {"hash": digest})


class SessionCheck:
    """Checks the rows of one session. Create a new object for each check."""

    def __init__(self, db: sqlite3.Connection, key: SessionKey) -> None:
        self._db = db
        self._key = key
        self._named: set[tuple[str, int]] = set()
        self._seqs: set[int] = set()

    def faults(self) -> Iterator[LocatedFault]:
        yield from self._session()
        yield from self._turns()
        yield from self._tree()
        yield from self._items()
        yield from self._media()
        yield from self._files()
        yield from self._marks("summaries", "last", "summary")
        yield from self._marks("openings", "seq", "opening")

    def _rows(self, query: str, *more: object) -> list[Any]:
        return self._db.execute(query, (*pair(self._key), *more)).fetchall()

    def _fault(self, kind: str, detail: str, **facts: Any) -> LocatedFault:
        return LocatedFault(self._key, kind, detail, facts)

    def _session(self) -> Iterator[LocatedFault]:
        columns = ", ".join(JSON_OF_SESSION)
        ((head, turns, size, *texts),) = self._rows(
            f"SELECT head, turns, bytes, {columns} FROM sessions WHERE namespace = ? AND id = ?"
        )
        for name, text in zip(JSON_OF_SESSION, texts, strict=True):
            if not _is_json(text):
                yield self._fault("description", f"{name} is not JSON", column=name)
        ((newest, taken),) = self._rows(
            f"SELECT coalesce(max(seq), 0), coalesce(sum(length(CAST(body AS BLOB))), 0) FROM items WHERE {HERE}"
        )
        if newest > head:
            yield self._fault("head", f"the head is {head}, but there is an item {newest}", head=newest)
        ((ordinal,),) = self._rows(f"SELECT coalesce(max(ordinal), 0) FROM turns WHERE {HERE}")
        if ordinal > turns:
            yield self._fault(
                "turn_count", f"the session counts {turns} turns, but has turn number {ordinal}", turns=ordinal
            )
        ((media,),) = self._rows(
            "SELECT coalesce(sum(b.size), 0) FROM media AS m JOIN blobs AS b ON b.namespace = m.namespace"
            " AND b.hash = m.hash WHERE m.namespace = ? AND m.session = ?"
        )
        ((file_bytes,),) = self._rows(f"SELECT coalesce(sum(size), 0) FROM files WHERE {HERE}")
        actual_bytes = taken + media + file_bytes
        if size != actual_bytes:
            yield self._fault(
                "bytes", f"the session counts {size} bytes, but stores {actual_bytes}", bytes=actual_bytes
            )

    def _turns(self) -> Iterator[LocatedFault]:
        for rowid, id, usage, record in self._rows(f"SELECT rowid, id, usage, record FROM turns WHERE {HERE}"):
            for name, text in (("usage", usage), ("record", record)):
                if not _is_json(text):
                    yield self._fault("turn_record", f"{name} of turn {id} is not JSON", rowid=rowid, column=name)

    def _tree(self) -> Iterator[LocatedFault]:
        existing = {0} | {id for (id,) in self._rows(f"SELECT id FROM segments WHERE {HERE}")}
        for id, parent in self._rows(f"SELECT id, parent FROM segments WHERE {HERE} ORDER BY id"):
            if parent not in existing or parent >= id:
                yield self._fault(
                    "segment", f"the parent of segment {id} is {parent}, which is not an older one", segment=id
                )
        ends = dict(self._rows(f"SELECT name, segment FROM branches WHERE {HERE}"))
        for name, segment in ends.items():
            if segment not in existing:
                detail = f"branch {name} ends in segment {segment}, which does not exist"
                yield self._fault("branch", detail, table="branches", column="name", value=name)
        ((branch, segment),) = self._rows("SELECT branch, segment FROM sessions WHERE namespace = ? AND id = ?")
        if branch not in ends or ends[branch] != segment:
            yield self._fault("current_branch", f"the branch {branch} does not exist or ends elsewhere")
        used = [row[0] for row in self._rows(f"SELECT DISTINCT segment FROM items WHERE {HERE}")]
        for lost in sorted(set(used) - existing):
            yield self._fault("lost_segment", f"items are in segment {lost}, which does not exist", segment=lost)
        extents = segments.segment_extents(self._db, self._key)
        for segment in sorted(existing & set(used)):
            # Count the items of the segment that no branch contains: those after the last item that a branch shows of
            # it.
            ((count, first),) = self._rows(
                f"SELECT count(*), min(seq) FROM items WHERE {HERE} AND segment = ? AND seq > ?",
                segment,
                extents.get(segment, 0),
            )
            if count:
                detail = f"{count} item(s) of segment {segment} are on no branch"
                behind = first - 1 if segment in extents else None
                yield self._fault("hidden_items", detail, segment=segment, behind=behind)

    def _items(self) -> Iterator[LocatedFault]:
        turns = dict(self._rows(f"SELECT id, state FROM turns WHERE {HERE}"))
        rows = self._db.execute(
            f"SELECT segment, rowid, seq, turn, role, call_id, body FROM items WHERE {HERE} ORDER BY segment, seq",
            pair(self._key),
        )
        unit: list[tuple[int, int]] = []
        waiting: set[str] = set()
        last: tuple[int, str] = (-1, "")
        for segment, rowid, seq, turn, role, call_id, body in rows:
            self._seqs.add(seq)
            message = _message(body)
            if (segment, turn) != last or message is None or message.role != "tool":
                yield from self._check_results(unit, waiting, turns.get(last[1], ""))
                unit, waiting, last = [], set(), (segment, turn)
            if turn not in turns:
                yield self._fault("no_turn", f"item {seq} belongs to turn {turn}, which does not exist", turn=turn)
                turns[turn] = "interrupted"
            if message is None:
                yield self._fault("body", f"item {seq} cannot be read", rowids=[rowid])
                continue
            self._named |= {(medium.hash, seq) for medium in message.media}
            if (role, call_id) != (message.role, message.call_id):
                yield self._fault("columns", f"the columns of item {seq} do not match its message", rowid=rowid)
            if message.role != "tool":
                waiting = {call.id for call in message.calls}
                unit = [(rowid, seq)] if waiting else []
            elif message.call_id in waiting:
                waiting.discard(message.call_id)
                unit.append((rowid, seq))
            else:
                yield self._fault("no_call", f"item {seq} is a tool result without its call", rowids=[rowid])
        yield from self._check_results(unit, waiting, turns.get(last[1], ""))

    def _check_results(self, unit: list[tuple[int, int]], waiting: set[str], state: str) -> Iterator[LocatedFault]:
        """Yield a fault if calls (``waiting``) have no result, unless their turn is still open. ``unit`` has (rowid,
        sequence number) of the message with the calls and of each result found."""
        if waiting and state != "open":
            seqs = ", ".join(str(seq) for _, seq in unit)
            detail = f"item(s) {seqs}: {len(waiting)} call(s) have no result"
            yield self._fault("no_result", detail, rowids=[rowid for rowid, _ in unit])

    def _media(self) -> Iterator[LocatedFault]:
        """Yield the faults of the session's media. Must be called after ``_items``, which collects the references to
        media."""
        rows = self._rows(f"SELECT hash, seq FROM media WHERE {HERE}")
        for digest, seq in sorted(set(rows) - self._named):
            detail = f"a row says that item {seq} refers to the media file {digest}, but the item does not"
            yield self._fault("media_row", detail, hash=digest, seq=seq, wanted=False)
        for digest, seq in sorted(self._named - set(rows)):
            detail = f"item {seq} refers to the media file {digest}, but no row says so"
            yield self._fault("media_row", detail, hash=digest, seq=seq, wanted=True)
        for digest in sorted({digest for digest, _ in self._named & set(rows)}):
            data = items.read_blob(self._db, self._key, digest)
            if data is None:
                yield self._fault("no_bytes", f"the media file {digest} is missing")
            elif hashlib.sha256(data).hexdigest() != digest:
                yield self._fault("wrong_bytes", f"the media file {digest} does not match its hash", hash=digest)

    def _files(self) -> Iterator[LocatedFault]:
        for file in files.select_files(self._db, self._key):
            if not file.error and not blobs.is_intact(self._db, self._key.namespace, file):
                detail = f"the bytes of file {file.id} are missing or do not match its hash"
                yield self._fault("file", detail, id=file.id, hash=file.hash)

    def _marks(self, table: str, column: str, kind: str) -> Iterator[LocatedFault]:
        """Yield a fault for each row of ``table`` whose ``column`` refers to an item that does not exist. The rows are
        summaries and openings, which describe the conversation up to an item. Must be called after ``_items``."""
        for seq in sorted({row[0] for row in self._rows(f"SELECT {column} FROM {table} WHERE {HERE}")} - self._seqs):
            detail = f"the {kind} up to item {seq}, which does not exist"
            yield self._fault(kind, detail, table=table, column=column, value=seq)


def _message(body: Any) -> Message | None:
    try:
        return serialization.decode(body)
    except UNREADABLE:
        return None


def _is_json(text: Any) -> bool:
    try:
        json.loads(text)
    except UNREADABLE:
        return False
    return True
