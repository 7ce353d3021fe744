"""Whether the file or directory of a store is still where it was: no empty one silently takes its place."""

from __future__ import annotations

import os
from pathlib import Path

from agent_kernel.core.errors import StoreError

JOURNALS = ("-wal", "-journal")
"""What SQLite keeps beside a database. The one of a database that is gone holds what was written last, and SQLite
deletes it when it makes an empty database in that place."""
_INITIAL_PAGES = slice(16, 20)
"""Where the header of a rollback journal (-journal) has the number of pages that the database had when the transaction
began: https://www.sqlite.org/fileformat2.html#the_rollback_journal"""


class Presence:
    """What lies at ``path``; None stands for a store in memory, which is always there. ``name`` is for messages."""

    def __init__(self, path: Path | None, name: str) -> None:
        self._path = path
        self._name = name
        self._identity: tuple[int, int] | None = None

    def note(self) -> None:
        """Takes what lies there now as what this process uses."""
        self._identity = self._stat()

    def is_replaced(self) -> bool:
        """Something else, or nothing, lies there now (moved away, deleted, restored from a backup): what is open would
        be written to unseen."""
        return self._stat() != self._identity

    def check(self) -> None:
        """Raises StoreError where an empty store would hide conversations that exist: what this process used is gone,
        or a journal lies there whose database is gone. Something else in the place (a backup) is used."""
        if self._path is None:
            return
        left = self._left_journal(self._path)
        if self._identity is not None and self._stat() is None:
            away = f"move {left.name} away too and " if left else ""
            raise StoreError(
                f"{self._name} was moved away or deleted while it was in use.",
                hint=f"Nothing was written. Put it back to where it was, or {away}restart to begin an empty one.",
            )
        if left is not None:
            raise StoreError(
                f"{self._path} is gone, but {left.name} beside it holds what was written to it last.",
                hint=f"Nothing was written. Put {self._path.name} back beside it; or move {left.name} away to begin an "
                "empty store.",
            )

    def _left_journal(self, path: Path) -> Path | None:
        """The journal of a database that is gone or empty, if there is one.

        Another process may create the database at this moment. SQLite writes the first page of a database before its
        -wal, so the journals are read first and the size of the database last. The -journal of the first transaction
        lies beside an empty file, but its header says that the database had no pages: there is nothing to lose."""
        beside = [path.with_name(path.name + suffix) for suffix in JOURNALS]
        holding = [journal for journal in beside if _holds_data(journal)]
        return holding[0] if holding and not _size(path) else None

    def _stat(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino


def _size(path: Path) -> int:
    """0 where nothing lies."""
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _holds_data(journal: Path) -> bool:
    """Whether a journal lies there that could restore pages of its database."""
    try:
        with journal.open("rb") as file:
            header = file.read(_INITIAL_PAGES.stop)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(header) if journal.name.endswith("-wal") else any(header[_INITIAL_PAGES])
