"""Defines the interface to files in which other frameworks keep their sessions, and opens their databases for reading
only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt
from agent_kernel.core.session_tree import Transcript

Columns: TypeAlias = Mapping[str, frozenset[str]]
"""Names of tables, each with the columns that it must have."""


@dataclass(frozen=True, slots=True)
class FrameworkSession:
    """A session in a file of another framework. ``id`` is the id that the other framework gave the session;
    agent-kernel may not allow such an id. ``name`` is the name under which the file holds the session."""

    namespace: str
    id: str
    name: str


class FrameworkFiles(Protocol):
    """The sessions in the files of another framework. The methods block."""

    def sessions(self) -> list[FrameworkSession]:
        """Return the sessions, also those that ``read`` refuses. Raises InvalidRequest and StoreCorrupt."""

    def read(self, session: FrameworkSession) -> Transcript | None:
        """Return a session with all branches and media, read at one moment; None if it was deleted. Raises
        InvalidRequest and StoreCorrupt for a session that cannot be read or that agent-kernel cannot store."""


def check_path(scheme: str, place: str) -> Path:
    """Return the path of an existing file or directory. Raises InvalidRequest if nothing exists at ``place``;
    ``scheme`` is the URL scheme that the error message suggests."""
    path = Path(place).expanduser()
    if not place or not path.exists():
        raise InvalidRequest(f"There is no file at {place!r}.", hint=f"Write {scheme}: and the path of the file.")
    return path


@contextmanager
def open_database(path: Path, tables: Columns, framework: str) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file and begin a read transaction. Other programs can write meanwhile; this connection does not
    see their changes. Raises InvalidRequest unless the file has the ``tables`` of the ``framework``, and StoreCorrupt
    if it cannot be read."""
    # To read the journal of a running program too, SQLite needs an index file beside the database. If this user cannot
    # create that file and no journal exists, no program is writing, and the database is read without it.
    journal = path.with_name(f"{path.name}-wal")
    alone = not os.access(path.parent, os.W_OK) and not journal.exists()
    uri = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)) as db:
            db.execute("PRAGMA trusted_schema = OFF")  # views and triggers of the file may call functions
            db.execute("BEGIN")
            lacking = sorted(name for name, columns in tables.items() if not has_columns(db, name, columns))
            if lacking:
                raise InvalidRequest(
                    f"{path} is not a database of {framework}: it has no table {lacking[0]} with the expected columns.",
                    hint="Nothing was copied. Check the path, and that FROM names the framework that wrote the file.",
                )
            yield db
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
            raise InvalidRequest(f"{path} is not a SQLite database.", hint="Check the path.") from error
        raise StoreCorrupt(f"{path} cannot be read: {error}.", hint="The file was not changed.") from error


def has_columns(db: sqlite3.Connection, table: str, columns: frozenset[str]) -> bool:
    """Return whether there is a table, not a view, with at least these columns."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone():
        return False
    return columns <= {name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))}
