"""One SQLite file and the one thread that touches it.

Not aiosqlite: there each statement is a trip of its own to the thread, so a cancelled task could stop between two
statements of a transaction. Here one call is one function on the thread, and its outcome is always known.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent_kernel.core.errors import AgentKernelError, StoreCorrupt, StoreError, StoreFull
from agent_kernel.sessions import shared_disk
from agent_kernel.sessions.blob_files import BlobFiles, Connection
from agent_kernel.sessions.store import schema
from agent_kernel.sessions.store.disk_reserve import Reserve
from agent_kernel.sessions.store.moved_store_check import Presence
from agent_kernel.sessions.tables import blobs

log = logging.getLogger(__name__)
T = TypeVar("T")

BUSY_TIMEOUT_S = 10.0
"""How long a write waits for another process's transaction; each of ours lasts about a millisecond."""
TOGETHER = 32
"""Writes that wait for the thread at the same time and share a transaction."""
READ, WRITE = "BEGIN", "BEGIN IMMEDIATE"
WAL_SIZE_LIMIT = 64 * 2**20
_ALMOST_FULL = 2**20
"""Free bytes below which an I/O error is put down to a full disk: growing the -shm file fails as SQLITE_IOERR."""


class Database:
    """Opened at first use, on its thread; closed by ``aclose``. ``path`` None is a database in memory.

    ``durable``: every write is on the disk before it is acknowledged, so that a power cut loses nothing; without it a
    killed process loses nothing, a power cut at most the last moments. ``before_commit`` runs inside every write and
    may still refuse it; ``prepare`` runs once on every new connection. ``files`` are for media too large for a row.
    ``name`` is what errors call it, by default the path. ``steps`` are the migrations, for tests. ``directory`` is
    where ``before_commit`` keeps what a database in memory holds.
    """

    def __init__(
        self,
        path: Path | None,
        steps: Sequence[str] | None = None,
        *,
        durable: bool = False,
        prepare: Callable[[sqlite3.Connection], None] | None = None,
        before_commit: Callable[[sqlite3.Connection], None] | None = None,
        files: BlobFiles | None = None,
        name: str = "",
        directory: Path | None = None,
    ) -> None:
        self.path = path
        self.name = name or str(path or "The session store in memory")
        self._files = files
        self._steps = steps
        self._durable = durable
        self._prepare = prepare
        self._before_commit = before_commit
        self._connection: Connection | None = None
        self._stuck: list[Connection] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agent-kernel-sessions")
        self._waiting: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._serving = False
        self._closing: Future[None] | None = None
        self._presence = Presence(path or directory, self.name)
        self._reserve = None if path is None else Reserve(path)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One consistent view of the file. Raises StoreError."""
        return await self._run(READ, work)

    async def write(self, work: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        """All or nothing: what ``work`` raises undoes what it did. ``frees``: it removes more than it adds, and so is
        done on a full disk too, with the space of the reserve. Raises StoreError."""
        return await self._run(WRITE, work, frees=frees)

    async def alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Without a transaction, for what SQLite does not do inside one. Raises StoreError."""
        return await self._run("", work)

    async def aclose(self) -> None:
        """Waits for what was begun; idempotent."""
        if self._closing is None:
            self._closing = self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
        await settled(self._closing, may_skip=False)

    async def _run(self, begin: str, work: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        if self._closing is not None:
            raise StoreError("This session store is closed.")
        job = _Job(begin, work, Future(), frees)
        with self._lock:
            self._waiting.append(job)
            idle, self._serving = not self._serving, True
        if idle:
            self._thread.submit(self._serve)
        result: T = await settled(job.outcome)
        return result

    def _serve(self) -> None:
        """On the thread, until nobody waits."""
        while jobs := self._next():
            wanted = [job for job in jobs if job.outcome.set_running_or_notify_cancel()]
            if len(wanted) < 2 or not self._together(wanted):
                for job in wanted:
                    self._alone(job)

    def _alone(self, job: _Job) -> None:
        try:
            result = self._freeing(job) if job.frees else self._transact(job.begin, job.work)
            self._sweep()
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the caller's
            job.outcome.set_exception(error)
        else:
            job.outcome.set_result(result)

    def _freeing(self, job: _Job) -> Any:
        """The result of a job, which may use the reserve. What it frees makes room for a new one.

        Some builds of SQLite overwrite what is deleted, which takes as much space in the journal: not here."""
        try:
            return self._transact(job.begin, job.work)
        except StoreFull:
            if self._reserve is None or not self._reserve.spend():
                raise

        def work(connection: sqlite3.Connection) -> Any:
            overwrites = connection.execute("PRAGMA secure_delete").fetchone()[0]
            connection.execute("PRAGMA secure_delete = OFF").fetchone()
            try:
                return job.work(connection)
            finally:
                connection.execute(f"PRAGMA secure_delete = {int(overwrites)}").fetchone()

        try:
            return self._transact(job.begin, work)
        finally:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._reserve.make()

    def _next(self) -> list[_Job]:
        """The one that waited longest; if it writes, with the writes that wait right behind it."""
        with self._lock:
            jobs = [self._waiting.popleft()] if self._waiting else []
            grouped = bool(jobs) and jobs[0].begin == WRITE and self._before_commit is None
            while grouped and self._waiting and self._waiting[0].begin == WRITE and len(jobs) < TOGETHER:
                jobs.append(self._waiting.popleft())
            self._serving = bool(jobs)
            return jobs

    def _together(self, jobs: Sequence[_Job]) -> bool:
        """Several writes in one transaction, which costs a quarter less and, when durable, one wait for the disk; each
        is undone by itself if it fails. False: nothing of any was written, and each has to be tried alone."""
        told: list[Callable[[], None]] = []

        def work(connection: sqlite3.Connection) -> None:
            for job in jobs:
                connection.execute("SAVEPOINT job")
                try:
                    told.append(functools.partial(job.outcome.set_result, job.work(connection)))
                except AgentKernelError as refusal:
                    connection.execute("ROLLBACK TO job")
                    told.append(functools.partial(job.outcome.set_exception, refusal))
                connection.execute("RELEASE job")

        try:
            self._transact(WRITE, work)
        except Exception:  # noqa: BLE001  one of them, or the disk: alone, each meets its own error
            return False
        self._sweep()
        for tell in told:
            tell()
        return True

    def _transact(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._opened()
            try:
                connection.execute(begin)
                if begin == WRITE and self.path is not None:
                    schema.must_be(self._version, connection, self.path)
                result = work(connection)
                if self._before_commit is not None and begin == WRITE:
                    self._before_commit(connection)
                if connection.in_transaction:
                    connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    self._roll_back(connection)
        except (sqlite3.Error, OSError) as error:
            raise self._named(error) from error
        return result

    def _sweep(self) -> None:
        """After a write: what was written is written, whatever happens to files that nobody names; what stays is
        collected later."""
        connection = self._connection
        if connection is None or not connection.unnamed:
            return
        try:
            blobs.sweep(connection)
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: files that no row names could not be taken away: %s", self.name, error)
        finally:
            if connection.in_transaction:
                self._roll_back(connection)

    def _roll_back(self, connection: Connection) -> None:
        """A connection that can not even undo is given up; closing it undoes, and the next call opens another."""
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close()

    def _opened(self) -> Connection:
        if self._connection is not None and not self._presence.is_replaced():
            return self._connection
        self._presence.check()
        self._empty_journal()
        self._close()
        if self.path is not None:
            self._make_file(self.path)
        place = self.path or ":memory:"
        connection = sqlite3.connect(
            place, timeout=BUSY_TIMEOUT_S, isolation_level=None, cached_statements=256, factory=Connection
        )
        connection.files = self._files
        try:
            if self.path is not None:
                _set_up(connection, shared=shared_disk.shared_disk(self.path), durable=self._durable)
            steps = schema.scripts() if self._steps is None else self._steps
            schema.migrate(connection, self.path, steps)
            self._version = len(steps)
            if self._prepare is not None:
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._presence.note()
        if self._reserve is not None:
            self._reserve.make()
        return connection

    def _empty_journal(self) -> None:
        """Before another file is used: what was written last goes into the one that was open, wherever it lies now. Its
        journal stays at our path, and SQLite would read it into the file that was put there. Raises StoreError."""
        if self._connection is None or self.path is None:
            return
        if self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreError(
                f"{self.name} was replaced by another file while another program reads the one before.",
                hint="Nothing was written. End that program, or put the file from before back.",
            )

    def _make_file(self, path: Path) -> None:
        """The file 0600, its directory 0700 if made here. SQLite gives -wal and -shm the mode of the file."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with suppress(PermissionError):
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)

    def _close(self) -> None:
        """A connection that can not be closed is kept, lest its locks stay with nobody who could give them back; each
        later closing tries again."""
        waiting = [*self._stuck, self._connection]
        self._connection, self._stuck = None, []
        for connection in waiting:
            try:
                if connection is not None:
                    connection.close()
            except sqlite3.Error as error:
                log.warning("%s: a connection could not be closed: %s", self.name, error)
                self._stuck += [connection] if connection is not None else []

    def _named(self, error: sqlite3.Error | OSError) -> StoreError:
        """The cause and the next step, with the file's name."""
        if isinstance(error, OSError):
            code = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EDQUOT: sqlite3.SQLITE_FULL}.get(error.errno or 0, 0)
        else:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_IOERR and self._almost_full():
            code = sqlite3.SQLITE_FULL
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"No space left for {self.name}.", hint="Free some space; nothing was half-written.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            self._close()
            return StoreCorrupt(f"{self.name} is damaged ({error}).", hint=self._rescue())
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(
                f"{self.name} was locked by another program for {BUSY_TIMEOUT_S:.0f} s.", hint="Nothing was written."
            )
        return StoreError(f"{self.name}: {error}.", hint="Check that the file and its directory can be written.")

    def _rescue(self) -> str:
        if self.path is None:
            return "Its sessions are lost with this process."
        backups = sorted(path.name for path in self.path.parent.glob(f"{self.path.name}.bak-v*"))
        restore = f"restore {backups[-1]}, or " if backups else ""
        return f"Nothing was overwritten. Move the file away and {restore}rescue what it holds: sqlite3 FILE .recover"

    def _almost_full(self) -> bool:
        try:
            return self.path is not None and shutil.disk_usage(self.path.parent).free < _ALMOST_FULL
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class _Job:
    """One call, and where its caller waits."""

    begin: str
    work: Callable[[sqlite3.Connection], Any]
    outcome: Future[Any]
    frees: bool = False


async def settled(future: Future[T], *, may_skip: bool = True) -> T:
    """The future's result. A cancelled caller still waits until the outcome is known: the call never started (only
    with ``may_skip``), or it ended, and its failure, if any, is the cause of the CancelledError."""
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        woken = loop.create_future()
        future.add_done_callback(functools.partial(_wake, loop, woken))
        try:
            await woken
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            if may_skip:
                future.cancel()
    if cancelled is None:
        return future.result()
    raise cancelled from (None if future.cancelled() else future.exception())


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None], done: Future[Any]) -> None:
    """From the store's thread; a loop that was closed meanwhile has nobody waiting."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_end_wait, woken)


def _end_wait(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _set_up(connection: sqlite3.Connection, *, shared: bool, durable: bool) -> None:
    """WAL with synchronous NORMAL: a killed process loses nothing, a power cut at most the last moments. On a shared
    disk a rollback journal with FULL, since NORMAL is not safe with it."""
    wanted = "delete" if shared else "wal"
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        _switch_journal(connection, wanted)
    connection.execute(f"PRAGMA synchronous = {'FULL' if shared or durable else 'NORMAL'}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")


def _switch_journal(connection: sqlite3.Connection, wanted: str) -> None:
    """Needs the file for itself for a moment, and SQLite does not wait for that by itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
