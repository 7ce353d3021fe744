"""Records which shared rows a transaction changes, in the order of the changes.

Temporary triggers write each changed row into the temporary table ``changes``. For rows that ``rows.insert_rows``
inserts, a list of Python values is used instead, and the table has one row with the number of this list. This takes a
third of the time of the triggers.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.sessions.blob_files import StoreConnection
from agent_kernel.sessions.log.log_store import Stream
from agent_kernel.sessions.store.row_changes import KEYS, RowChange, session_column

_FIRST_KEY = 5
_FIRST_VALUE = _FIRST_KEY + max(map(len, KEYS.values()))
"""Indexes of the first key and the first value among the columns of ``changes``."""
_LISTED = "items", "turns"
"""Tables into which only ``rows.insert_rows`` inserts. A row of the table ``changes`` with the event ``listed`` stands
for all rows that one call of this function inserts."""


class ChangeRecorder:
    """Records the changes of one connection. ``columns`` are the shared columns of each table."""

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self._columns = columns
        self._lists: list[Sequence[Sequence[Any]]] = []

    def start(self, db: sqlite3.Connection) -> None:
        """Record all changes from now on."""
        db.execute("PRAGMA temp_store = MEMORY")  # one transaction changes few rows
        widest = max(len(columns) for columns in self._columns.values()) + 2
        names = [*(f"k{n}" for n in range(_FIRST_VALUE - _FIRST_KEY)), *(f"v{n}" for n in range(widest))]
        db.execute(
            "CREATE TEMP TABLE changes (n INTEGER PRIMARY KEY, tab TEXT, event TEXT, namespace TEXT, session TEXT,"
            f" {', '.join(names)})"
        )
        for table, columns in self._columns.items():
            changed = f" OF {', '.join(columns)}" if table == "sessions" else ""
            for event, words in (("i", "INSERT"), ("u", f"UPDATE{changed}"), ("d", "DELETE")):
                if event == "i" and table in _LISTED:
                    continue
                row = "OLD" if event == "d" else "NEW"
                values = {
                    name: f"NEW.{column}"
                    for name, column in zip(names[_FIRST_VALUE - _FIRST_KEY :], columns, strict=False)
                }
                if table == "media":
                    blob = "FROM main.blobs WHERE namespace = NEW.namespace AND hash = NEW.hash"
                    values |= {
                        f"v{len(columns)}": f"(SELECT mime {blob})",
                        f"v{len(columns) + 1}": f"(SELECT size {blob})",
                    }
                keys = {name: f"OLD.{column}" for name, column in zip(names, KEYS[table], strict=False)}
                given = (keys if event != "i" else {}) | (values if event != "d" else {})
                session = "''" if table == "bindings" else f"{row}.{session_column(table)}"
                db.execute(
                    f"CREATE TEMP TRIGGER record_{table}_{event} AFTER {words} ON main.{table} BEGIN"
                    f" INSERT INTO changes (tab, event, namespace, session, {', '.join(given)})"
                    f" VALUES ('{table}', '{event}', {row}.namespace, {session}, {', '.join(given.values())}); END"
                )
        if isinstance(db, StoreConnection):
            db.list_rows = self._list_rows

    def begin(self) -> None:
        """Release the lists of the previous transaction, before a new one begins."""
        self._lists.clear()

    def read(self, db: sqlite3.Connection) -> dict[Stream, list[RowChange]]:
        """Return the changes of the open transaction by stream."""
        found: defaultdict[Stream, list[RowChange]] = defaultdict(list)
        ends = {
            table: (_FIRST_KEY + len(KEYS[table]), _FIRST_VALUE + len(columns) + 2 * (table == "media"))
            for table, columns in self._columns.items()
        }
        updates: dict[tuple[str, str], int] = {}
        for row in db.execute("SELECT * FROM temp.changes ORDER BY n"):
            table, event, stream = row[1], row[2], row[3:_FIRST_KEY]
            changes, (last_key, last_value) = found[stream], ends[table]
            if event == "listed":
                changes += [RowChange(table, "i", (), values) for values in self._lists[row[_FIRST_KEY]]]
                continue
            old = () if event == "i" else row[_FIRST_KEY:last_key]
            new = () if event == "d" else row[_FIRST_VALUE:last_value]
            if table == "sessions":
                # Each turn updates the row of its session. The last update contains all values, so it replaces earlier
                # ones.
                before = updates.pop(stream, None)
                if event == "u":
                    if before is not None:
                        changes[before] = RowChange(table, event, old, new)
                        updates[stream] = before
                        continue
                    updates[stream] = len(changes)
            changes.append(RowChange(table, event, old, new))
        return found

    def clear(self, db: sqlite3.Connection) -> None:
        """Forget the changes of the open transaction."""
        db.execute("DELETE FROM temp.changes")

    def _list_rows(self, db: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
        # The table has a line for the list, so that a rollback removes the line together with the rows. A list without
        # its line is ignored.
        namespace, session = rows[0][:2]
        db.execute(
            "INSERT INTO temp.changes (tab, event, namespace, session, k0) VALUES (?, 'listed', ?, ?, ?)",
            (table, namespace, session, len(self._lists)),
        )
        self._lists.append(rows)


def count_changes(db: sqlite3.Connection) -> int:
    """Return the number of the last change that was recorded in the open transaction, or 0."""
    return int(db.execute("SELECT coalesce(max(n), 0) FROM temp.changes").fetchone()[0])
