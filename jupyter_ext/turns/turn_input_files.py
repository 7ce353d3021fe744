"""Stores the input files of a request as files of the turn's session. A request gives each file by its id or with its
bytes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from agent_kernel.core.errors import FileNotFound, InvalidRequest
from agent_kernel.core.file_receiver import ReceivedFile
from agent_kernel.core.files import File, clean_name
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.file_registry import FileRegistry
from jupyter_ext.auth.callers import Caller
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.dialect_request import SubmittedFile

PURPOSE = "user_data"


@dataclass(frozen=True, slots=True)
class AccessibleFile:
    """A stored file in a session that the caller may use."""

    file: File
    key: SessionKey
    registry: FileRegistry

    async def read(self) -> bytes:
        """Return the bytes of the file. Raises FileGone, FileNotProduced."""
        _, body = await self.registry.open(self.key, self.file.id)
        return body if isinstance(body, bytes) else await asyncio.to_thread(body.read_bytes)


@dataclass(frozen=True, slots=True)
class TurnInputs:
    """Adds the files of requests to sessions. ``files`` is None if the session store cannot store files."""

    store: SessionStore
    files: FileRegistry | None
    access: Access

    async def find(self, caller: Caller, id: str) -> AccessibleFile | None:
        """Return the file, or None if no session that the caller may use has it."""
        registry = self.files
        for owner in await registry.sessions_of(caller.namespace, id) if registry is not None else []:
            if registry is not None and await self.access.may_use(caller, owner.id):
                return AccessibleFile(await registry.file(owner, id), owner, registry)
        return None

    async def attach(self, caller: Caller, key: SessionKey, ids: Sequence[str]) -> None:
        """Attach files of other sessions to this one. Raises FileNotFound, also for files of sessions that the
        caller may not use."""
        files = self.files
        file_ids = {file.id for file in await files.files(key)} if files is not None and ids else set()
        for id in dict.fromkeys(ids):
            if id in file_ids:
                continue
            owners = await files.sessions_of(key.namespace, id) if files is not None else []
            usable = [owner for owner in owners if await self.access.may_use(caller, owner.id)]
            if files is None or not usable:
                raise FileNotFound(f"There is no file {id[:80]!r}.", details={"file": id[:200]})
            await files.attach(key, usable[0], id)

    async def add(self, caller: Caller, key: SessionKey, files: Sequence[SubmittedFile]) -> tuple[str, ...]:
        """Store the files in the session, which is created if needed, and return their ids in order.

        A client that repeats a conversation repeats its files: a file with the same name and bytes is stored once.
        Raises FileNotFound, FileTooLarge, InvalidRequest, and errors of the store.
        """
        if not files:
            return ()
        registry = self.files
        if registry is None and not all(given.id for given in files):
            raise InvalidRequest("The session store of this server cannot store files.")
        await self.store.create(key)
        await self.attach(caller, key, [given.id for given in files if given.id])
        if registry is None or all(given.id for given in files):
            return tuple(given.id for given in files)
        listed = await registry.files(key)
        known = {(file.name, file.hash): file.id for file in reversed(listed) if file.purpose == PURPOSE}
        brought = []
        for given in files:
            id = given.id
            if not id:
                same = clean_name(given.name), await asyncio.to_thread(_hash, given.data)
                id = known[same] = known.get(same) or await _store_file(registry, key, given)
            brought.append(id)
        return tuple(brought)


async def _store_file(registry: FileRegistry, key: SessionKey, submitted: SubmittedFile) -> str:
    arrived = await asyncio.to_thread(_spool, registry, submitted)
    return (await registry.receive(key, submitted.name, arrived, purpose=PURPOSE, mime=submitted.mime)).id


def _hash(data: bytes) -> str:
    """Return the hash under which the file registry knows a file with these bytes."""
    return hashlib.sha256(data).hexdigest()


def _spool(files: FileRegistry, submitted: SubmittedFile) -> ReceivedFile:
    with closing(files.incoming()) as incoming:
        incoming.write(submitted.data)
        return incoming.finish()
