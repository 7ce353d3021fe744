"""Checks that the file or directory of a store is still in its place, so that the process does not continue with a new,
empty store."""

from __future__ import annotations

import os
from pathlib import Path

from agent_kernel.core.errors import StoreError

JOURNALS = ("-wal", "-journal")
"""Suffixes of the files that SQLite keeps beside a database. If the database is missing, its journal may still hold the
last writes. SQLite would delete the journal when it creates an empty database at that path."""
_INITIAL_PAGES = slice(16, 20)
"""Bytes of a rollback journal's header that hold the number of pages the database had when the transaction began:
https://www.sqlite.org/fileformat2.html#the_rollback_journal"""


class MovedStoreCheck:
    """Remembers which file or directory is at ``path``, and detects when another file or directory is there instead.

    A ``path`` of None stands for a store in memory, which cannot be moved. ``name`` is used in error messages.
    """

    def __init__(self, path: Path | None, name: str) -> None:
        self._path = path
        self._name = name
        self._identity: tuple[int, int] | None = None

    def note(self) -> None:
        """Remember the file or directory that is at the path now. From now on, it counts as the store that this process
        uses."""
        self._identity = self._stat()

    def is_replaced(self) -> bool:
        """Return whether the remembered file is no longer at the path: it was moved away, deleted, or replaced by a
        backup. Nobody would see writes to the file that is still open."""
        return self._stat() != self._identity

    def check(self) -> None:
        """Raise StoreError if opening the path would create an empty store that hides existing sessions: the file that
        this process used is missing, or there is a journal without its database. Another file in its place (a backup)
        is accepted."""
        if self._path is None:
            return
        journal = self._orphan_journal(self._path)
        if self._identity is not None and self._stat() is None:
            away = f"move {journal.name} away too and " if journal else ""
            raise StoreError(
                f"{self._name} was moved away or deleted while it was in use.",
                hint=f"Nothing was written. Move it back to its place, or {away}restart to create an empty store.",
            )
        if journal is not None:
            raise StoreError(
                f"{self._path} is gone, but {journal.name} beside it holds the last writes to it.",
                hint=f"Nothing was written. Put {self._path.name} back beside it, or move {journal.name} away to "
                "create an empty store.",
            )

    def _orphan_journal(self, path: Path) -> Path | None:
        """Return the journal of a database that is missing or empty, if there is one.

        Another process may be creating the database at this moment. SQLite writes the first page of a database before
        its -wal file, so this reads the journals first and the size of the database last. The first transaction of a
        new database also has a -journal beside an empty file, but its header says that the database had no pages, so
        nothing can be lost.
        """
        beside = [path.with_name(path.name + suffix) for suffix in JOURNALS]
        holding = [journal for journal in beside if _holds_data(journal)]
        return holding[0] if holding and not _size(path) else None

    def _stat(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino


def _size(path: Path) -> int:
    """Return the size of the file in bytes; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _holds_data(journal: Path) -> bool:
    """Return whether the journal exists and contains pages from which the database could be restored."""
    try:
        with journal.open("rb") as file:
            header = file.read(_INITIAL_PAGES.stop)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(header) if journal.name.endswith("-wal") else any(header[_INITIAL_PAGES])
