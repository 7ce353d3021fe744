"""The session store of several servers: a SqliteStore whose rows are a private copy of a log in a shared database."""

from __future__ import annotations

import functools
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent_kernel.core.errors import AgentKernelError, StoreError
from agent_kernel.core.process_directory import ProcessDirectory
from agent_kernel.sessions.blob_files import BlobFiles
from agent_kernel.sessions.log.log_store import LogConflict, LogStore
from agent_kernel.sessions.log.message_bus import MessageBus
from agent_kernel.sessions.store.database import BUSY_TIMEOUT_S, READ, WRITE, Database, PendingCall
from agent_kernel.sessions.store.replica import Replica
from agent_kernel.sessions.store.sqlite import NONE, SqliteStore
from agent_kernel.sessions.tables.quota import Quota

T = TypeVar("T")
MAX_PAUSE_S = 0.01
"""The longest pause in seconds before a write is tried again. It is short, because a writer that waits longer than
other writers loses to them again."""
NAMED = "SELECT namespace, hash FROM media UNION SELECT namespace, hash FROM files WHERE hash <> ''"


class SharedStore(SqliteStore):
    """A SessionStore of several servers on one ``log``. Each call first reads the changes of other servers, and a write
    is acknowledged only after it is in the log. So every server sees every acknowledged write.

    This process keeps a copy of all rows in memory, and media that were read in a temporary directory, until the store
    is closed. While the shared database cannot be reached, every call raises StoreError. ``clock`` returns seconds
    since the epoch, by default those of the shared database, so that servers with wrong clocks agree about leases.
    """

    def __init__(self, log: LogStore, *, quota: Quota = NONE, clock: Callable[[], float] | None = None) -> None:
        replica = Replica(log)
        super().__init__(None, quota=quota, clock=clock or (lambda: time.monotonic() + replica.offset))
        self._log = log
        self._cache = ProcessDirectory("agent-kernel-media-")
        files = _SharedBlobFiles(self._cache.path, in_row=0, log=log)
        self._database = _SharedDatabase(log, replica, files)

    def bus(self) -> MessageBus | None:
        """Return a new bus to the other servers of this store, which the caller closes; None if servers of this
        database cannot send each other messages."""
        return self._log.bus()

    async def vacuum(self) -> int:
        """Do what ``SqliteStore.vacuum`` does, and delete the bytes of media in the log to which no row has referred
        for an hour. Returns the number of bytes freed."""
        freed = await super().vacuum()
        return freed + await self._database.read(
            lambda db: self._log.drop_blobs({(namespace, digest) for namespace, digest in db.execute(NAMED)})
        )

    async def aclose(self) -> None:
        """Wait for the calls that have started, then disconnect. Idempotent."""
        await super().aclose()
        self._cache.close()


class _SharedDatabase(Database):
    """A database in memory that holds a copy of the shared log. Before a call the changes of other servers are applied
    to it, and every write is published in the log. Calls that wait at the same moment share one request to the log, and
    a write shortly after another write does not read first, because the log checks whether the copy is current."""

    def __init__(self, log: LogStore, replica: Replica, files: BlobFiles) -> None:
        super().__init__(None, prepare=replica.prepare, before_commit=replica.publish, files=files, name=log.name)
        self._log = log
        self._replica = replica
        self._grouped = frozenset({READ, WRITE})

    async def write(self, work: Callable[[sqlite3.Connection], T], *namespaces: str, frees: bool = False) -> T:
        return await super().write(functools.partial(self._replica.run, work), *namespaces, frees=frees)

    def _run_single(self, job: PendingCall) -> None:
        self._replica.select([job.namespaces])
        super()._run_single(job)

    def _commit_group(self, jobs: Sequence[PendingCall]) -> bool:
        self._replica.select([job.namespaces for job in jobs])
        if jobs[0].begin == WRITE:
            return super()._commit_group(jobs)
        try:
            self._update()
        except Exception:  # noqa: BLE001  each call runs again alone and gets its own error
            return False
        for job in jobs:
            try:
                result = super()._transact(READ, job.work)
            except BaseException as error:  # noqa: BLE001  the caller waits for it and raises it
                job.outcome.set_exception(error)
            else:
                job.outcome.set_result(result)
        return True

    def _is_undone(self) -> bool:
        return not self._replica.sent

    def _transact(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        end, attempt = time.monotonic() + BUSY_TIMEOUT_S, 0
        while True:
            self._open()
            unread = begin == WRITE and attempt == 0 and self._replica.begin_unread()
            try:
                if not unread:
                    self._update()
                result = super()._transact(begin, work)
            except LogConflict:
                attempt += 1
                if time.monotonic() > end:
                    raise StoreError(
                        f"{self.name}: other servers changed the same session {attempt} times within "
                        f"{BUSY_TIMEOUT_S:.0f} seconds, while this write was tried.",
                        hint="Nothing was written. Try again.",
                    ) from None
                if not unread:
                    # The pause is random, so that two writers do not collide again and again.
                    time.sleep(random.random() * min(MAX_PAUSE_S, 0.001 * attempt))
            except AgentKernelError:
                # The call may have failed only because the local copy was outdated. It is repeated if other servers
                # have written changes.
                if not unread or self._replica.sent or not self._update():
                    raise
                attempt += 1
            else:
                if begin == WRITE:
                    self._replica.settle()
                return result

    def _update(self) -> bool:
        """Apply the changes of other servers, and return whether there were any. Raises StoreError."""
        try:
            return self._replica.update(self._open())
        except sqlite3.Error as error:
            raise self._to_store_error(error) from error

    def _close(self) -> None:
        super()._close()
        self._log.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedBlobFiles(BlobFiles):
    """Stores the bytes of media in the log, with a copy in ``directory`` of those that this process has used."""

    log: LogStore

    def put(self, namespace: str, digest: str, data: bytes) -> None:
        self.log.put_blob(namespace, digest, data)
        self._keep(namespace, digest, data)

    def take(self, namespace: str, digest: str, written: Path) -> None:
        self.put(namespace, digest, written.read_bytes())

    def find(self, namespace: str, digest: str, size: int) -> Path | None:
        return BlobFiles.find(self, namespace, digest, size) or (
            BlobFiles.find(self, namespace, digest, size) if self.get(namespace, digest) is not None else None
        )

    def get(self, namespace: str, digest: str) -> bytes | None:
        data = BlobFiles.get(self, namespace, digest)
        if data is None and (data := self.log.get_blob(namespace, digest)) is not None:
            self._keep(namespace, digest, data)
        return data

    def _keep(self, namespace: str, digest: str, data: bytes) -> None:
        """Write the bytes into the local copy, without waiting for the disk: the copy is temporary."""
        path = self.directory / self.relative_path(namespace, digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_bytes(data)
        partial.replace(path)
