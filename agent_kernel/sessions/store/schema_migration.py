"""Migrates the file of a store to the current version of the tables, by numbered SQL scripts. A file with data is
backed up first."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path

from agent_kernel.core.errors import StoreCorrupt

APPLICATION_ID = 0x41474B53
"""Identifier ("AGKS") in the header of the SQLite file. It prevents migrations of another program's database."""


def migration_scripts(package: str = "agent_kernel.sessions.store") -> list[str]:
    """Return the SQL scripts in the folder ``migrations`` of a package in order. The n-th script migrates from version
    n-1 to version n."""
    folder = resources.files(package) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def migrate(connection: sqlite3.Connection, path: Path | None, steps: Sequence[str]) -> None:
    """Migrate the file to version ``len(steps)`` in one transaction. If several processes do this at once, one of them
    migrates the file and the others find it migrated.

    Needs a connection in autocommit mode. A file with data is copied to ``NAME.bak-vN`` first. Raises StoreCorrupt for
    a file of a newer version and for a file that is not a session store, and leaves such a file unchanged.
    """
    if _version(connection, path, len(steps)) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read the version again, now under the write lock: another process may have migrated the file meanwhile.
        version = _version(connection, path, len(steps))
        if path is not None and version and version < len(steps):
            _back_up(path, version)
        for step in steps[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_version(version: int, connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreCorrupt if another process has migrated the file to a newer version than ``version`` while this
    process had it open. This runs before every write, since the statements of this version may be wrong for the newer
    tables."""
    if connection.execute("PRAGMA user_version").fetchone()[0] != version:
        _version(connection, path, version)


def _version(connection: sqlite3.Connection, path: Path | None, newest: int) -> int:
    # All reads are in one transaction, because another process could commit its migration between two reads.
    begins = not connection.in_transaction
    if begins:
        connection.execute("BEGIN")
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    finally:
        if begins and connection.in_transaction:
            connection.execute("COMMIT")
    if (version or tables) and mark != APPLICATION_ID:
        raise StoreCorrupt(
            f"{path} is a database of another program, not a session store.",
            hint="Nothing was changed. Name another file for the sessions.",
        )
    if version > newest:
        raise StoreCorrupt(
            f"{path} was written by a newer agent-kernel (format {version}, this one knows {newest}).",
            hint="Nothing was changed. Upgrade agent-kernel, or name another file for the sessions.",
        )
    return version


def _back_up(path: Path, version: int) -> None:
    """Copy the file through a second connection: SQLite refuses a backup from a connection that is writing."""
    target = path.with_name(f"{path.name}.bak-v{version}")
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_WRONLY, 0o600))
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _statements(script: str) -> Iterator[str]:
    """Split a script at the ends of its statements. ``executescript`` cannot be used instead: it commits the open
    transaction, so the migration would not be atomic."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
