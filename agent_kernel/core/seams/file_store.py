"""The part of a session store that holds files. The rules of ``session_store.py`` about operations apply here too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from agent_kernel.core.files import File
from agent_kernel.core.session import SessionKey


class SessionFiles(Protocol):
    """Files of sessions: produced by tools and uploaded by people.

    A custom store may leave this part out; files are then not stored. Files are deleted with their session and when it
    is cleared; a fork has the files of its turns.
    """

    async def add_files(self, key: SessionKey, new: Sequence[tuple[File, bytes | Path | None]]) -> None:
        """Store all files or none.

        Each file comes with its bytes, with the path of a written and synced file (which is copied or linked), or, for
        a file with an error, with None. Raises SessionNotFound, Conflict for an id that the session already has,
        QuotaExceeded, and InvalidRequest for bytes that do not match.
        """

    async def file(self, key: SessionKey, id: str) -> File | None: ...

    async def files(self, key: SessionKey) -> list[File]:
        """Return the files of a session, oldest first."""

    async def file_body(self, key: SessionKey, id: str) -> bytes | Path | None:
        """Return the bytes, or a path that is readable until the file is removed; None if there are no bytes."""

    async def remove_file(self, key: SessionKey, id: str) -> bool:
        """Remove a file from a session and return whether it existed. Other sessions with the same file keep it."""

    async def sessions_of_file(self, namespace: str, id: str) -> list[SessionKey]:
        """Return the sessions that have a file, in the order in which they received it."""

    async def all_files(
        self, namespace: str, limit: int | None = None, *, sessions: Collection[str] | None = None
    ) -> list[tuple[SessionKey, File]]:
        """Return the files of these sessions or (None) of all sessions of a namespace, newest first."""
