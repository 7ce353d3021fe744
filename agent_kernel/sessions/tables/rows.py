"""Converts rows to sessions, turns and items, and defines the SQL fragments that all statements share."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from agent_kernel.core.session import Item, Session, SessionKey, Summary, Turn
from agent_kernel.sessions import serialization
from agent_kernel.sessions.blob_files import StoreConnection

SESSION_COLUMNS = (
    "namespace, id, title, created, updated, head, revision, turns, branch, accessed, tags, metadata, context, imported"
)
"""The columns of a session in the order in which ``session_from_row`` expects them; it also accepts a row of
COUNTED_COLUMNS. The constants below are the columns for the other functions."""
COUNTED_COLUMNS = f"""
{SESSION_COLUMNS},
(SELECT max((SELECT max(seq) FROM items AS i
             WHERE i.namespace = s.namespace AND i.session = s.id AND i.segment = g.id))
 FROM (SELECT 0 AS id UNION ALL
       SELECT id FROM segments AS p WHERE p.namespace = s.namespace AND p.session = s.id) AS g),
(SELECT count(*) FROM turns AS t WHERE t.namespace = s.namespace AND t.session = s.id)
"""
"""The columns of a session, which the query must call ``s``, with ``last_seq`` and ``turn_count``.

The newest item is found by one look-up for each segment in the index (namespace, session, segment, seq), without a scan
of all items. Segment 0 has no row and is added by UNION. Turns are counted one by one in an index, 50 ns each, so
statements of a write never select these columns.
"""
TURN_COLUMNS = (
    "namespace, session, id, ordinal, state, reason, cell, epoch, location, model, opened, closed, usage, record, since"
)
ITEM_COLUMNS = "seq, turn, body, time"
SUMMARY_COLUMNS = "last, text, model, usage, reason, id, time"
HERE = "namespace = ? AND session = ?"
"""SQL condition that selects the rows of one session. Its parameters are the result of ``pair(key)``."""


def pair(key: SessionKey) -> tuple[str, str]:
    return key.namespace, key.id


def count_changes(db: sqlite3.Connection) -> int:
    """Return the number of rows that the last INSERT, UPDATE or DELETE changed.

    Not ``Cursor.rowcount``: Python recognizes these statements by the rules of the locale, and in Turkish or
    Azerbaijani (which have a dotless I) it takes INSERT for a query and reports -1."""
    (count,) = db.execute("SELECT changes()").fetchone()
    return int(count)


def insert_row(
    db: sqlite3.Connection, table: str, key: SessionKey, *, or_replace: bool = False, **values: object
) -> None:
    """Insert one row of a session. With ``or_replace`` it replaces a row with the same primary key."""
    row = {"namespace": key.namespace, "session": key.id, **values}
    verb = "INSERT OR REPLACE" if or_replace else "INSERT"
    db.execute(f"{verb} INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()])


def insert_rows(db: sqlite3.Connection, table: Literal["items", "turns"], rows: Sequence[Sequence[object]]) -> None:
    """Insert rows of one session, each with all columns of the table in their order. Nothing else inserts into these
    tables, because a shared store records only rows that this function inserts."""
    if rows:
        if isinstance(db, StoreConnection) and db.list_rows is not None:
            db.list_rows(db, table, rows)
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def update_session(db: sqlite3.Connection, key: SessionKey, **values: object) -> None:
    """Update the columns of the row of a session that the keyword arguments name."""
    columns = ", ".join(f"{name} = ?" for name in values)
    db.execute(f"UPDATE sessions SET {columns} WHERE namespace = ? AND id = ?", (*values.values(), *pair(key)))


def has_row(db: sqlite3.Connection, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> bool:
    """Return whether the query finds at least one row."""
    return db.execute(query, values).fetchone() is not None


def sql_limit(limit: int | None) -> int:
    """Return the value for LIMIT. In SQLite, -1 means no limit."""
    return -1 if limit is None else limit


def session_from_row(row: Sequence[Any]) -> Session:
    *plain, tags, metadata, context, imported = row[2:14]
    last_seq, turn_count = row[14:] or (0, 0)
    return replace(
        Session(SessionKey(row[0], row[1]), *plain),
        tags=tuple(json.loads(tags)),
        metadata=json.loads(metadata),
        context=json.loads(context),
        imported=json.loads(imported),
        last_seq=last_seq or 0,
        turn_count=turn_count,
    )


def turn_row(turn: Turn) -> tuple[object, ...]:
    words = (turn.ordinal, turn.state, turn.reason, turn.cell, turn.epoch, turn.where, turn.model)
    texts = [serialization.encode_value(facts) if facts else "{}" for facts in (turn.usage, turn.record)]
    return (*pair(turn.key), turn.id, *words, turn.opened, turn.closed, *texts, turn.since)


def turn_from_row(row: Sequence[Any]) -> Turn:
    *middle, usage, record, since = row[3:]
    turn = Turn(row[2], SessionKey(row[0], row[1]), *middle)
    return replace(turn, usage=json.loads(usage), record=json.loads(record), since=since)


def summary_from_row(key: SessionKey, row: Sequence[Any]) -> Summary:
    last, text, model, usage, *rest = row
    return Summary(key, last, text, model, json.loads(usage), *rest)


def item_from_row(row: Sequence[Any]) -> Item:
    seq, turn, body, time = row
    return Item(seq, turn, serialization.decode(body), time)
