"""Opens one SQLite file, and runs all calls that use it on one thread.

This is not aiosqlite: there, each statement is sent to the thread separately, so a cancelled task could stop between
two statements of a transaction. Here, a call passes one function that runs on the thread from beginning to end, so it
is always known whether its transaction was committed.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import shutil
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent_kernel.core.errors import AgentKernelError, StoreCorrupt, StoreError, StoreFull
from agent_kernel.core.shielded_await import await_uncancelled, wake_together
from agent_kernel.sessions import shared_disk
from agent_kernel.sessions.blob_files import BlobFiles, StoreConnection
from agent_kernel.sessions.store import database_file, schema_migration
from agent_kernel.sessions.store.moved_store_check import MovedStoreCheck
from agent_kernel.sessions.tables import blobs

log = logging.getLogger(__name__)
T = TypeVar("T")

NOT_WRITABLE = (
    "Check that the file and its directory can be written, or set AGENT_KERNEL_DATA_DIR to a directory that can."
)
BUSY_TIMEOUT_S = 10.0
"""Seconds that a write waits for another process's transaction. Each of our transactions lasts about a millisecond."""
MAX_GROUPED_WRITES = 32
"""Maximum number of waiting writes that share one transaction."""
READ, WRITE = "BEGIN", "BEGIN IMMEDIATE"
"""Values of ``PendingCall.begin``. BEGIN IMMEDIATE takes the write lock at once, so that a transaction that has read
never fails later because another process wrote in between."""
_ALMOST_FULL = 2**20
"""If the disk has fewer free bytes than this, an I/O error counts as a full disk, because SQLite reports SQLITE_IOERR
if it cannot enlarge the -shm file."""


class Database:
    """A SQLite database. It is opened at first use, on its own thread, and closed by ``aclose``. If ``path`` is None,
    the database is in memory.

    With ``durable``, every write is on the disk before it is acknowledged, so that a power cut loses nothing. Without
    it, a killed process loses nothing, and a power cut loses at most the writes of the last moments. ``prepare`` runs
    once on every new connection. ``before_commit`` runs at the end of every write transaction; if it raises, nothing is
    written. A store in memory uses it to save its contents in ``directory``. ``files`` holds media that are too large
    for a row. ``name`` is used in error messages, by default the path. ``steps`` are the migrations, by default those
    of the session store.
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
        self._grouped = frozenset({WRITE} if before_commit is None else ())
        self._connection: StoreConnection | None = None
        self._read_only = False
        self._unclosed: list[StoreConnection] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agent-kernel-sessions")
        self._waiting: deque[PendingCall] = deque()
        self._lock = threading.Lock()
        self._serving = False
        self._closing: Future[None] | None = None
        self._presence = MovedStoreCheck(path or directory, self.name)
        self._reserve = None if path is None else database_file.DiskReserve(path)

    async def read(self, work: Callable[[sqlite3.Connection], T], *namespaces: str) -> T:
        """Run ``work`` in a read transaction: it sees one consistent state of the file. ``work`` may use only rows of
        ``namespaces``, or rows of all namespaces if none is given. Raises StoreError."""
        return await self._run(READ, work, namespaces)

    async def write(self, work: Callable[[sqlite3.Connection], T], *namespaces: str, frees: bool = False) -> T:
        """Run ``work`` in a write transaction. ``namespaces`` are those whose rows it uses, as in ``read``. If ``work``
        raises, nothing is written.

        ``frees`` marks a write that removes more than it adds. Such a write also runs on a full disk, with the space of
        the reserve. Raises StoreError."""
        return await self._run(WRITE, work, namespaces, frees=frees)

    async def run_outside_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` without a transaction, for statements that SQLite does not allow in one. Raises StoreError."""
        return await self._run("", work, ())

    async def aclose(self) -> None:
        """Wait for the calls that have started, then close the file. Idempotent."""
        if self._closing is None:
            self._closing = self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
        await await_uncancelled(self._closing)

    async def _run(
        self, begin: str, work: Callable[[sqlite3.Connection], T], namespaces: tuple[str, ...], *, frees: bool = False
    ) -> T:
        if self._closing is not None:
            raise StoreError("This session store is closed.")
        job = PendingCall(begin, work, Future(), namespaces, frees)
        with self._lock:
            self._waiting.append(job)
            idle, self._serving = not self._serving, True
        if idle:
            self._thread.submit(self._serve)
        result: T = await await_uncancelled(job.outcome, may_skip=True)
        return result

    def _serve(self) -> None:
        """Run the waiting calls until there is none. The database's own thread runs this method."""
        while jobs := self._take_group():
            active = [job for job in jobs if job.outcome.set_running_or_notify_cancel()]
            if len(active) < 2 or not self._commit_group(active):
                for job in active:
                    self._run_single(job)

    def _run_single(self, job: PendingCall) -> None:
        try:
            result = self._run_with_reserve(job) if job.frees else self._transact(job.begin, job.work)
            self._delete_unnamed_files()
        except BaseException as error:  # noqa: BLE001  the caller waits for it and raises it
            job.outcome.set_exception(error)
        else:
            job.outcome.set_result(result)

    def _run_with_reserve(self, job: PendingCall) -> Any:
        """Run a call that may use the disk reserve, then refill the reserve from the space that the call freed.

        Some builds of SQLite overwrite deleted content (secure_delete). That needs as much space in the journal as the
        content has, so it is switched off for this call."""
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

    def _take_group(self) -> list[PendingCall]:
        """Take the call that has waited longest; if it writes, also take the writes that follow directly in the queue.
        ``_grouped`` contains the values of ``begin`` of the transactions that may be combined in this way."""
        with self._lock:
            jobs = [self._waiting.popleft()] if self._waiting else []
            begin = jobs[0].begin if jobs else ""
            while begin in self._grouped and self._waiting and self._waiting[0].begin == begin:
                if len(jobs) == MAX_GROUPED_WRITES:
                    break
                jobs.append(self._waiting.popleft())
            self._serving = bool(jobs)
            return jobs

    def _commit_group(self, jobs: Sequence[PendingCall]) -> bool:
        """Run several writes in one transaction. This costs a quarter less than one transaction each and, when durable,
        a single wait for the disk.

        Every write has its own savepoint, so one that fails is undone alone. Returns False when the whole transaction
        failed: then nothing of any write was stored, and each has to run alone."""
        # Callers learn their results only after COMMIT: before it, no result is certain.
        outcomes: list[Callable[[], None]] = []

        def work(connection: sqlite3.Connection) -> None:
            outcomes.clear()
            for job in jobs:
                connection.execute("SAVEPOINT job")
                try:
                    outcomes.append(functools.partial(job.outcome.set_result, job.work(connection)))
                # Only an error that the work itself raised is undone here. Any other error (SQLite, disk) may concern
                # the whole transaction and ends it.
                except AgentKernelError as refusal:
                    connection.execute("ROLLBACK TO job")
                    outcomes.append(functools.partial(job.outcome.set_exception, refusal))
                connection.execute("RELEASE job")

        try:
            self._transact(WRITE, work)
        except Exception as error:  # noqa: BLE001  the callers wait for it
            if self._is_undone():
                return False  # each call runs again alone and gets its own error
            for job in jobs:
                job.outcome.set_exception(error)
            return True
        self._delete_unnamed_files()
        with wake_together():
            for set_outcome in outcomes:
                set_outcome()
        return True

    def _transact(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._open()
            try:
                connection.execute(begin)
                if begin == WRITE and self.path is not None:
                    # Another process may have migrated the file since this one opened it.
                    schema_migration.check_version(self._version, connection, self.path)
                result = work(connection)
                if self._before_commit is not None and begin == WRITE:
                    self._before_commit(connection)
                if connection.in_transaction:
                    connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    self._roll_back(connection)
        except (sqlite3.Error, OSError) as error:
            raise self._to_store_error(error) from error
        return result

    def _is_undone(self) -> bool:
        """Return whether it is certain that the last transaction, which raised an error, has stored nothing."""
        return True

    def _delete_unnamed_files(self) -> None:
        """Delete the blob files whose last row this write has deleted. A failure is only logged: the write itself is
        committed, and ``collect_garbage`` removes the files later."""
        if (connection := self._connection) is None or not connection.unnamed:
            return
        try:
            blobs.delete_unnamed_files(connection)
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: media files to which no row refers could not be deleted: %s", self.name, error)
        finally:
            if connection.in_transaction:
                self._roll_back(connection)

    def _roll_back(self, connection: StoreConnection) -> None:
        """Roll back. If even that fails, close the connection, which also undoes the transaction; the next call opens a
        new one."""
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close()

    def _open(self) -> StoreConnection:
        """Return the open connection. If the file is not open yet, or was replaced by another file, open it first."""
        if self._connection is not None and not self._read_only and not self._presence.is_replaced():
            return self._connection
        # The file at our path is not the one that is open (or none is open yet). First refuse the cases in which an
        # empty store would hide existing sessions.
        self._presence.check()
        self._empty_journal()
        self._close()
        # A file that this process cannot write is opened again for each call, because another machine may change it.
        self._read_only = self.path is not None and database_file.is_read_only(self.path)
        connection = self._connect()
        connection.files = self._files
        try:
            if self.path is not None and not self._read_only:
                database_file.configure_journal(
                    connection,
                    shared=shared_disk.is_shared_disk(self.path),
                    durable=self._durable,
                    wait_s=BUSY_TIMEOUT_S,
                )
            steps = schema_migration.migration_scripts() if self._steps is None else self._steps
            schema_migration.migrate(connection, self.path, steps)
            self._version = len(steps)
            if self._prepare is not None:
                self._prepare(connection)
        except BaseException:  # also on Ctrl-C: nobody else knows the connection yet
            connection.close()
            raise
        self._connection = connection
        self._presence.note()
        if self._reserve is not None and not self._read_only:
            self._reserve.make()
        return connection

    def _connect(self) -> StoreConnection:
        if self.path is not None and self._read_only:
            return database_file.connect_read_only(self.path, self.name)
        if self.path is not None:
            self._make_file(self.path)
        place = self.path or ":memory:"
        return sqlite3.connect(
            place, timeout=BUSY_TIMEOUT_S, isolation_level=None, cached_statements=256, factory=StoreConnection
        )

    def _empty_journal(self) -> None:
        """Write the -wal journal of the open file into that file, before another file at the same path is opened.

        The open file may have been moved away, but its -wal file is still at our path, and SQLite would apply it to the
        new file. Raises StoreError when another program still reads the old file.
        """
        if self._connection is None or self.path is None or self._read_only:
            return
        if self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreError(
                f"{self.name} was replaced by another file while another program still reads the previous one.",
                hint="Nothing was written. End that program, or put the previous file back.",
            )

    def _make_file(self, path: Path) -> None:
        """Create the file with mode 0600 and its directory with mode 0700. SQLite gives the -wal and -shm files the
        mode of the database."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with suppress(PermissionError):
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)

    def _close(self) -> None:
        """Close the connection, and all earlier connections that could not be closed.

        A connection that fails to close is kept: if it were dropped, nothing could release its locks. Every later close
        tries again.
        """
        waiting = [connection for connection in (*self._unclosed, self._connection) if connection is not None]
        self._connection, self._unclosed = None, []
        for connection in waiting:
            try:
                connection.close()
            except sqlite3.Error as error:
                log.warning("%s: a connection could not be closed: %s", self.name, error)
                self._unclosed.append(connection)

    def _to_store_error(self, error: sqlite3.Error | OSError) -> StoreError:
        """Translate an error of SQLite or the system into a StoreError that names the file, the cause and the next
        step."""
        if isinstance(error, OSError):
            code = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EDQUOT: sqlite3.SQLITE_FULL}.get(error.errno or 0, 0)
        else:
            # The low byte is the primary result code; the bytes above it are the extended code.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_IOERR and self._almost_full():
            code = sqlite3.SQLITE_FULL
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"No space left for {self.name}.", hint="Free some space. Nothing was written.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            self._close()
            return StoreCorrupt(f"{self.name} is damaged ({error}).", hint=self._recovery_hint())
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(
                f"{self.name} was locked by another program for {BUSY_TIMEOUT_S:.0f} s.", hint="Nothing was written."
            )
        cause = error.strerror if isinstance(error, OSError) else error
        return StoreError(f"{self.name}: {cause}.", hint=NOT_WRITABLE)

    def _recovery_hint(self) -> str:
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
class PendingCall:
    """A call that waits for the thread. ``begin`` is the statement that begins its transaction (empty: none), ``work``
    the function to run, and ``outcome`` the future on which the caller waits. ``namespaces`` and ``frees`` are
    described at ``Database.read`` and ``Database.write``."""

    begin: str
    work: Callable[[sqlite3.Connection], Any]
    outcome: Future[Any]
    namespaces: tuple[str, ...] = ()
    frees: bool = False
