"""The part of a session store that keeps files; what ``sessions/store.py`` says of operations holds here too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from agent_kernel.core.files import File
from agent_kernel.core.session import SessionKey


class SessionFiles(Protocol):
    """Files of sessions: what tools made and what people brought. A part that a store of one's own may leave out: then
    files are not kept. They go with their session, and when it is cleared; a fork has those of its turns."""

    async def add_files(self, key: SessionKey, new: Sequence[tuple[File, bytes | Path | None]]) -> None:
        """All or none, each with its bytes, or a path where they are written and synced (a copy or link is made), or,
        for a file with an error, None. Raises SessionNotFound, Conflict for an id that the session has, QuotaExceeded,
        InvalidRequest for bytes that do not match."""
        ...

    async def file(self, key: SessionKey, id: str) -> File | None: ...

    async def files(self, key: SessionKey) -> list[File]:
        """Oldest first."""
        ...

    async def file_body(self, key: SessionKey, id: str) -> bytes | Path | None:
        """The bytes, or a path where they can be read until the file is removed; None: there are none."""
        ...

    async def remove_file(self, key: SessionKey, id: str) -> bool:
        """True if it was there. Other sessions that have it keep it."""
        ...

    async def sessions_of_file(self, namespace: str, id: str) -> list[SessionKey]:
        """Those that have it, the first one first."""
        ...

    async def all_files(
        self, namespace: str, limit: int | None = None, *, sessions: Collection[str] | None = None
    ) -> list[tuple[SessionKey, File]]:
        """Newest first, of these sessions or (None) of all."""
        ...
