"""Tests which changes of rows are recorded for the log of a shared store."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.blob_files import StoreConnection
from agent_kernel.sessions.store import schema_migration
from agent_kernel.sessions.store.change_recorder import ChangeRecorder
from agent_kernel.sessions.store.row_changes import KEYS, shared_columns
from agent_kernel.sessions.tables import rows, turns

KEY = SessionKey("local", "s")


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=StoreConnection)
    schema_migration.migrate(connection, None, schema_migration.migration_scripts())
    yield connection
    connection.close()


@pytest.fixture
def recorder(db: sqlite3.Connection) -> ChangeRecorder:
    made = ChangeRecorder({table: shared_columns(db, table) for table in KEYS})
    made.start(db)
    return made


def test_recorded_rows_have_the_values_that_are_stored(db: sqlite3.Connection, recorder: ChangeRecorder) -> None:
    db.execute("BEGIN IMMEDIATE")
    turns.add_messages(db, KEY, [user("a"), user("b")], record={"by": "x"}, now=1.5)
    (changes,) = recorder.read(db).values()
    for table, order in (("items", "seq"), ("turns", "ordinal")):
        stored = db.execute(f"SELECT {', '.join(shared_columns(db, table))} FROM {table} ORDER BY {order}").fetchall()
        assert [tuple(change.new) for change in changes if change.table == table] == stored
        assert len(stored) == 2


def test_what_a_savepoint_undoes_is_not_recorded(db: sqlite3.Connection, recorder: ChangeRecorder) -> None:
    db.execute("BEGIN IMMEDIATE")
    for text in ("undone", "kept"):
        db.execute("SAVEPOINT job")
        turns.add_messages(db, KEY, [user(text)], record={}, now=1.0)
        if text == "undone":
            db.execute("ROLLBACK TO job")
        db.execute("RELEASE job")
    (changes,) = recorder.read(db).values()
    assert [change.new[7] for change in changes if change.table == "items"] == ['{"role":"user","content":"kept"}']
    db.execute("COMMIT")


def test_items_and_turns_are_inserted_only_by_the_function_that_lists_them() -> None:
    """No trigger records an insertion into these tables, because that took twice the time of the insertion."""
    folder = Path(rows.__file__).parent
    inserting = re.compile(r"INSERT( OR \w+)? INTO (items|turns)\b|insert_row\([^)]*\"(items|turns)\"")
    assert [path.name for path in folder.glob("*.py") if inserting.search(path.read_text(encoding="utf-8"))] == []
