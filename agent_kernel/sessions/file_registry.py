"""Stores the files that tools produce and people upload, each with its session, and returns them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agent_kernel.core import file_receiver, safe_path
from agent_kernel.core.errors import (
    FileGone,
    FileNotFound,
    FileNotProduced,
    FileTooLarge,
    InvalidRequest,
    QuotaExceeded,
    StoreError,
    StoreFull,
)
from agent_kernel.core.file_receiver import CopyBudget, CopyTimeout, FileReceiver, ReceivedFile
from agent_kernel.core.files import (
    BODY_OMITTED,
    INLINE_BYTES,
    NOT_PRODUCED,
    OCTETS,
    File,
    ProducedFile,
    StoredFile,
    clean_name,
    format_of,
    mime_of,
    with_body,
)
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import SessionKey

log = logging.getLogger(__name__)
UPLOADS = "uploads"
"""Id of the session that holds files uploaded without a session. It is a session like any other, with the same
retention."""
KEEP_S = 60.0
"""Default time limit, in seconds, for copying the files of one tool call."""
STOP_S = 5.0
"""Seconds to wait until a copy has stopped, after its call was cancelled."""
TURNS = 1_000
"""Maximum number of tool rounds for which the number of produced files is remembered. Only rounds of running turns need
this number."""
GONE_MESSAGES = {
    NOT_PRODUCED: "not produced",
    "vanished": "it was deleted, or was not a regular file, before it could be stored",
}


class FileRegistry:
    """Stores files in the session store, each for its session only.

    ``directory`` holds the bytes of files while they arrive; it should be on the same disk as the store.
    ``output_bytes`` is the maximum size of a file that a tool produces, ``upload_bytes`` that of an uploaded file.
    """

    def __init__(
        self,
        store: FileStore,
        directory: Path,
        *,
        output_bytes: int,
        upload_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.upload_bytes = upload_bytes
        self._store = store
        self._directory = directory
        self._output_bytes = output_bytes
        self._clock = clock
        self._numbers = RecentEntries[tuple[SessionKey, str, int], int](TURNS)

    @classmethod
    def of(cls, store: SessionStore, directory: Path, output_mb: int, upload_mb: int) -> FileRegistry | None:
        """Return a registry, or None for a store that cannot hold files."""
        if not hasattr(store, "add_files"):
            return None
        return cls(cast(FileStore, store), directory, output_bytes=output_mb << 20, upload_bytes=upload_mb << 20)

    # ------------------------------------------------------------------------------------------------ files of tools

    async def keep(
        self, files: Sequence[ProducedFile], context: ToolContext, *, within_s: float = KEEP_S
    ) -> list[StoredFile]:
        """Store files of a tool call, as ``FileKeeper`` describes. A result contains the file's body as long as the
        bodies of the call together have at most INLINE_BYTES. The size limit of one file applies to all files together
        that are copied from a work directory."""
        stored_files: list[StoredFile] = []
        room = INLINE_BYTES
        budget = CopyBudget(self._directory, self._output_bytes, within_s)
        for produced in files:
            stored = await self._keep(produced, context, room, budget)
            stored_files.append(stored)
            room -= stored.file.size if stored.wire.keys() & {"text", "data_base64"} else 0
        return stored_files

    async def _keep(self, produced: ProducedFile, context: ToolContext, room: int, budget: CopyBudget) -> StoredFile:
        facts = self._facts(produced, context)
        if produced.error:
            return await self._without_bytes(context.key, facts, produced.error, GONE_MESSAGES.get(produced.error, ""))
        try:
            arrived = await self._copy(produced, budget)
        except FileTooLarge as error:
            return await self._without_bytes(context.key, facts, "too_large", str(error))
        except CopyTimeout as error:
            return await self._without_bytes(context.key, facts, "timeout", str(error))
        except StoreError as error:
            return await self._without_bytes(context.key, facts, error.code, error.message)
        except (OSError, InvalidRequest) as error:
            log.debug("the file %r of turn %s was not stored: %s", produced.name, context.turn, error)
            return await self._without_bytes(context.key, facts, "vanished", GONE_MESSAGES["vanished"])
        try:
            file = _fill_facts(facts, arrived)
            await self._store.add_files(context.key, [(file, arrived.body)])
            return StoredFile(file, await asyncio.to_thread(_to_json_with_body, file, arrived, room))
        except (QuotaExceeded, StoreFull) as error:
            return await self._without_bytes(context.key, facts, error.code, error.message)
        finally:
            arrived.remove()

    async def _without_bytes(self, key: SessionKey, facts: File, error: str, message: str) -> StoredFile:
        file = replace(facts, error=error, message=message or error.replace("_", " "))
        try:
            await self._store.add_files(key, [(file, None)])
        except (QuotaExceeded, StoreFull) as full:
            log.warning("the file %r was not stored, and its error could not be recorded either: %s", file.name, full)
        return StoredFile(file, file.to_json())

    async def _copy(self, produced: ProducedFile, budget: CopyBudget) -> ReceivedFile:
        """Copy the bytes of a produced file into ``directory``. If the task is cancelled, the copy stops after its
        current block and is removed. Raises FileTooLarge, StoreError, CopyTimeout, and OSError if the source cannot
        be read."""
        copy = asyncio.ensure_future(asyncio.to_thread(self._read_received, produced, budget))
        try:
            return await asyncio.shield(copy)
        except asyncio.CancelledError:
            budget.stop()
            copy.add_done_callback(_remove_copy)
            await asyncio.wait([copy], timeout=STOP_S)
            raise

    def _read_received(self, produced: ProducedFile, budget: CopyBudget) -> ReceivedFile:
        data = produced.data
        if isinstance(data, bytes):
            return file_receiver.receive_chunks(iter([data]), self._directory, self._output_bytes)
        root = produced.root or data.parent
        source = safe_path.open_file(root, str(data.relative_to(root)))
        return file_receiver.copy_from_descriptor(source, self._directory, self._output_bytes, budget)

    def _facts(self, produced: ProducedFile, context: ToolContext) -> File:
        turn, round = context.ordinal, max(0, context.round - 1)
        place = (context.key, context.turn, round)
        number = self._numbers[place] = self._numbers.get(place, -1) + 1
        form = (produced.format or format_of(produced.name)).lower()
        origin = {"tool": context.call.name, "round": round, "turn": turn}
        return self._empty_file(make_id(context.turn, round, number), produced.name, form, **origin)

    def _empty_file(self, id: str, name: str, form: str, **facts: Any) -> File:
        """Return a file whose bytes are not known yet; ``form`` is its format."""
        format = clean_name(form)[:40] if form else ""
        return File(id, clean_name(name), mime_of(form), 0, self._clock(), format, **facts)

    # ------------------------------------------------------------------------------------------------ uploaded files

    def incoming(self) -> FileReceiver:
        """Return a receiver for the bytes of an upload. Blocking; raises StoreError."""
        return FileReceiver(self._directory, self.upload_bytes)

    async def receive(
        self,
        key: SessionKey,
        name: str,
        arrived: ReceivedFile,
        *,
        purpose: str = "user_data",
        mime: str = "",
        lasts_s: float | None = None,
    ) -> File:
        """Store an upload as a file of an existing session.

        ``arrived`` holds the received bytes. ``mime`` is used if the name does not determine the type. ``lasts_s`` is
        the file's lifetime in seconds; None: as long as its session. The file of ``arrived`` is removed, even on
        failure. Raises SessionNotFound, QuotaExceeded, StoreError.
        """
        try:
            session = await self._store.info(key)
            origin = {"purpose": purpose, "tool": "user_upload", "turn": session.turns if session else 0}
            facts = self._empty_file(f"file-{secrets.token_hex(16)}", name, format_of(name), **origin)
            if facts.mime == OCTETS and mime:
                facts = replace(facts, mime=mime)
            if lasts_s is not None:
                facts = replace(facts, expires=facts.created + lasts_s)
            file = _fill_facts(facts, arrived)
            await self._store.add_files(key, [(file, arrived.body)])
            return file
        finally:
            arrived.remove()

    async def attach(self, key: SessionKey, source: SessionKey, id: str) -> File:
        """Add the file ``id`` of session ``source`` to session ``key`` under the same id, and return it. If ``key``
        has that file already, nothing is changed. Raises FileNotFound, FileGone, FileNotProduced, SessionNotFound,
        QuotaExceeded, StoreError."""
        if (known := await self._store.file(key, id)) is not None and await self._is_current(key, known):
            return known
        file, body = await self.open(source, id)
        session = await self._store.info(key)
        file = replace(file, turn=session.turns if session else 0)
        await self._store.add_files(key, [(file, body)])
        return file

    # ------------------------------------------------------------------------------------------------ reading

    async def files(self, key: SessionKey) -> list[File]:
        """Return the files of a session, oldest first."""
        return [file for file in await self._store.files(key) if await self._is_current(key, file)]

    async def file(self, key: SessionKey, id: str) -> File:
        """Return a file. Raises FileNotFound, also for a file of another session."""
        file = await self._store.file(key, id)
        if file is None or not await self._is_current(key, file):
            raise FileNotFound(f"There is no file {id[:80]!r} in this session.", details={"file": id[:200]})
        return file

    async def open(self, key: SessionKey, id: str) -> tuple[File, bytes | Path]:
        """Return a file with its bytes or their path. Raises FileNotFound, FileGone if its bytes no longer exist, and
        FileNotProduced if they never existed."""
        file = await self.file(key, id)
        if file.error in (BODY_OMITTED, "gone"):
            raise FileGone(f"{file.name}: {file.message}.", details={"file": file.id})
        if file.error:
            raise FileNotProduced(f"{file.name}: {file.message}.", details={"file": file.id, "code": file.error})
        body = await self._store.file_body(key, id)
        if body is None:
            raise FileGone(f"The bytes of {file.name} are no longer available.", details={"file": file.id})
        return file, body

    async def sessions_of(self, namespace: str, id: str) -> list[SessionKey]:
        return await self._store.sessions_of_file(namespace, id)

    async def everywhere(self, namespace: str, among: frozenset[str] | None) -> list[tuple[SessionKey, File]]:
        """Return the files of a namespace with their sessions, newest first. ``among`` are the ids of the sessions to
        read (None: all)."""
        entries = await self._store.all_files(namespace, sessions=among)
        return [(key, file) for key, file in entries if await self._is_current(key, file)]

    async def remove(self, key: SessionKey, id: str) -> bool:
        return await self._store.remove_file(key, id)

    async def expire(self, namespace: str) -> None:
        """Remove the files that have expired. An expired file is hidden from readers even before it is removed."""
        await self.everywhere(namespace, None)

    async def _is_current(self, key: SessionKey, file: File) -> bool:
        """Remove the file if it has expired. Returns whether it has not expired."""
        if not file.expires or file.expires > self._clock():
            return True
        await self._store.remove_file(key, file.id)
        return False


def _remove_copy(copy: asyncio.Future[ReceivedFile]) -> None:
    if not copy.cancelled() and copy.exception() is None:
        copy.result().remove()


def make_id(turn: str, round: int, number: int) -> str:
    """Return the id of a file that a tool produced. ``number`` is the file's number within ``round`` of the turn; both
    count from 0."""
    return f"file_{hashlib.sha256(turn.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}_r{round}_{number}"


def _fill_facts(facts: File, arrived: ReceivedFile) -> File:
    mime = facts.mime
    if arrived.text and mime == OCTETS:
        mime = "text/plain"
    return replace(facts, mime=mime, size=arrived.size, hash=arrived.hash, preview=arrived.preview)


def _to_json_with_body(file: File, arrived: ReceivedFile, room: int) -> dict[str, Any]:
    """Return the JSON form of a file; it includes the body if that has at most ``room`` bytes."""
    facts = file.to_json()
    return with_body(facts, arrived.path.read_bytes(), text=file.is_text) if file.size <= room else facts
