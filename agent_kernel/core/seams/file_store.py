"""Defines the part of a session store that stores files, and the interface through which files of tool calls get
there. The rules of ``session_store.py`` about operations apply here too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from agent_kernel.core.files import File, ProducedFile, StoredFile
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.session import SessionKey


class SessionFiles(Protocol):
    """The interface for the files of sessions, which tools produce or people upload.

    A custom store may leave this part out; files are then not stored. Files are deleted when their session is deleted
    or cleared. A fork contains the files of the turns that it contains.
    """

    async def add_files(self, key: SessionKey, new: Sequence[tuple[File, bytes | Path | None]]) -> None:
        """Store all files or none.

        Each file comes with its bytes, with the path of a written and synced file (which is copied or linked), or, for
        a file with an error, with None. Raises SessionNotFound, Conflict for an id that the session already has,
        QuotaExceeded, and InvalidRequest for bytes that do not match the hash and size of the file.
        """

    async def file(self, key: SessionKey, id: str) -> File | None: ...

    async def files(self, key: SessionKey) -> list[File]:
        """Return the files of a session, oldest first."""

    async def file_body(self, key: SessionKey, id: str) -> bytes | Path | None:
        """Return the bytes of a file, or a path at which they can be read until the file is removed; None if there are
        no bytes."""

    async def remove_file(self, key: SessionKey, id: str) -> bool:
        """Remove a file from a session and return whether it existed. Other sessions to which the same file was added
        keep it."""

    async def sessions_of_file(self, namespace: str, id: str) -> list[SessionKey]:
        """Return the sessions that have the file with this id, in the order in which it was added to them."""

    async def all_files(
        self, namespace: str, *, sessions: Collection[str] | None = None
    ) -> list[tuple[SessionKey, File]]:
        """Return the files of a namespace with their sessions, newest first. ``sessions`` are the ids of the sessions
        to include (None: all)."""


class FileKeeper(Protocol):
    """Stores the files that tool calls produce."""

    async def keep(
        self, files: Sequence[ProducedFile], context: ToolContext, *, within_s: float = 60.0
    ) -> list[StoredFile]:
        """Store the files of one call with its session and return them in order.

        A file that cannot be stored (too large, over quota, missing, or not copied within ``within_s`` seconds) is
        recorded as a file with an error. Raises StoreError.
        """
