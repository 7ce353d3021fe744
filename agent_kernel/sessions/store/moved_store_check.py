"""Check that the file or directory of a store is still in its place, so that no empty store silently replaces it."""

from __future__ import annotations

import os
from pathlib import Path

from agent_kernel.core.errors import StoreError

JOURNALS = ("-wal", "-journal")
"""Suffixes of the files that SQLite keeps beside a database. If the database is missing, its journal still holds the
last writes, and SQLite would delete it when it creates an empty database in that place."""
_INITIAL_PAGES = slice(16, 20)
"""Bytes of a rollback journal's header that hold the number of pages the database had when the transaction began:
https://www.sqlite.org/fileformat2.html#the_rollback_journal"""


class MovedStoreCheck:
    """Remember which file or directory is at ``path`` and notice when it is another one.

    None stands for a store in memory, which is always there. ``name`` is used in error messages."""

    def __init__(self, path: Path | None, name: str) -> None:
        self._path = path
        self._name = name
        self._identity: tuple[int, int] | None = None

    def note(self) -> None:
        """Remember what is at the path now as the store that this process uses."""
        self._identity = self._stat()

    def is_replaced(self) -> bool:
        """Whether something else, or nothing, is at the path now: it was moved away, deleted or restored from a backup.
        Writes to the open file would then not be seen by anybody."""
        return self._stat() != self._identity

    def check(self) -> None:
        """Raise StoreError where an empty store would hide existing sessions: the file that this process used is
        missing, or there is a journal without its database. Another file in its place (a backup) is accepted."""
        if self._path is None:
            return
        left = self._orphan_journal(self._path)
        if self._identity is not None and self._stat() is None:
            away = f"move {left.name} away too and " if left else ""
            raise StoreError(
                f"{self._name} was moved away or deleted while it was in use.",
                hint=f"Nothing was written. Move it back to its place, or {away}restart to create an empty store.",
            )
        if left is not None:
            raise StoreError(
                f"{self._path} is gone, but {left.name} beside it holds the last writes to it.",
                hint=f"Nothing was written. Put {self._path.name} back beside it; or move {left.name} away to create "
                "an empty store.",
            )

    def _orphan_journal(self, path: Path) -> Path | None:
        """Return the journal of a database that is missing or empty, if there is one.

        Another process may be creating the database at this moment. SQLite writes the first page of a database before
        its -wal file, so this reads the journals first and the size of the database last. The -journal of the first
        transaction also lies beside an empty file, but its header says that the database had no pages, so nothing can
        be lost."""
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
    """Return whether the journal exists and contains pages from which its database could be restored."""
    try:
        with journal.open("rb") as file:
            header = file.read(_INITIAL_PAGES.stop)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(header) if journal.name.endswith("-wal") else any(header[_INITIAL_PAGES])
