"""A session store that writes one JSON document per session, which people can read or keep in git.

DIRECTORY/sessions/NAME.json    bindings.json    blobs/...    lock    holder.json
"""

from __future__ import annotations

import json
import logging
import os
import platform
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import filelock

from agent_kernel.core import atomic_file
from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.blob_files import BlobFiles
from agent_kernel.sessions.store import json_document, schema_migration
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.moved_store_check import MovedStoreCheck
from agent_kernel.sessions.store.sqlite import NONE, SqliteStore
from agent_kernel.sessions.tables.quota import Quota

log = logging.getLogger(__name__)
BINDINGS = ("", "bindings")
"""The (namespace, id) that stands for the document of bindings in the list of changed sessions. No session has an empty
namespace."""
_BROKEN = (sqlite3.Error, KeyError, TypeError, ValueError, AttributeError, InvalidRequest)
"""Errors that a damaged or foreign document may cause."""


class FilesStore(SqliteStore):
    """A SqliteStore in memory that writes a document for every session into ``directory``.

    All documents are read when the store is opened and stay in memory. Every change, including a heartbeat, rewrites
    the document of its session and waits for the disk, so the time to append to a session grows with its length. The
    store is suited to a few hundred sessions of a few hundred turns; use the default store for more.

    Only one process can use the directory; any other process gets a StoreError that names the process that uses it. A
    document that cannot be read is logged and left unchanged: its session does not exist for the store, and writes to
    it raise StoreCorrupt until the file is repaired or moved away and the store is opened again. Other sessions and
    other files are not affected. While the directory is missing, every call raises StoreError. If another directory is
    put in its place, its documents are read.
    """

    def __init__(self, directory: str | Path, *, quota: Quota = NONE, clock: Callable[[], float] = time.time) -> None:
        super().__init__(None, quota=quota, clock=clock)
        self.directory = Path(directory).absolute()
        self._folder = _DocumentFolder(self.directory)
        self._database = Database(
            None,
            (),
            prepare=self._folder.load,
            before_commit=self._folder.save,
            files=BlobFiles(self.directory / "blobs", in_row=0),
            name=str(self.directory),
            directory=self._folder.documents,
        )

    async def aclose(self) -> None:
        """Wait for the calls that have started and release the directory to other processes. Idempotent."""
        await super().aclose()
        self._folder.release()


class _DocumentFolder:
    """The documents of a FilesStore, used on the store's thread.

    ``_unreadable`` are files that must not be overwritten. ``_unsaved`` are sessions whose documents may differ from
    the database, because a save has failed; the next save writes them again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.documents = directory / "sessions"
        self._lock = filelock.FileLock(directory / "lock", timeout=0, thread_local=False)
        self._lock_file = MovedStoreCheck(directory / "lock", str(directory))
        self._scripts = schema_migration.migration_scripts()
        self._unreadable: set[Path] = set()
        self._unsaved: set[tuple[str, str]] = set()
        self._tables: dict[str, list[str]] = {}

    # -------------------------------------------------------------------------------------------- opening

    def load(self, db: sqlite3.Connection) -> None:
        """Read all documents into an empty database, and record from then on which sessions change."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.documents.mkdir(mode=0o700, exist_ok=True)
        self._acquire()
        self._unreadable.clear()
        documents = sorted(self._read_documents(), key=lambda document: (document[0], document[1].name))
        # Documents of an old version are inserted into tables of that version, and the following migrations change
        # their rows. The documents are therefore sorted by version.
        for version, path, body in documents:
            schema_migration.migrate(db, None, self._scripts[:version])
            self._load_document(db, path, body)
        schema_migration.migrate(db, None, self._scripts)
        self._load_bindings(db)
        self._tables = json_document.document_tables(db)
        _create_triggers(db, self._tables)

    def _acquire(self) -> None:
        """Take the lock of the directory; take it again if another directory was put in its place."""
        if self._lock.is_locked and not self._lock_file.is_replaced():
            return
        self._lock.release()
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            raise StoreError(
                f"{self._directory} is in use by {self._holder()}.",
                hint="Only one process can use the files store. Stop the other one, or use the sqlite store.",
            ) from error
        self._lock_file.note()
        holder = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        path = self._directory / "holder.json"
        atomic_file.replace_file(path, json_document.to_bytes(holder))

    def _holder(self) -> str:
        try:
            holder = json.loads((self._directory / "holder.json").read_bytes())
            return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def release(self) -> None:
        self._lock.release()

    def _read_documents(self) -> list[tuple[int, Path, Mapping[str, Any]]]:
        """Return (version, path, document) of every readable document."""
        documents = []
        for path in self.documents.glob("*.json"):
            try:
                body = json_document.from_bytes(path.read_bytes())
                if body is None:
                    self._skip_file(path, "it is not a session document of agent-kernel")
                elif json_document.file_name(SessionKey(body["namespace"], body["id"])) != path.name:
                    self._skip_file(path, "its name belongs to another session (is it a copy?)")
                else:
                    documents.append((json_document.read_version(body, len(self._scripts)), path, body))
            except (OSError, *_BROKEN) as error:
                self._skip_file(path, str(error))
        return documents

    def _load_document(self, db: sqlite3.Connection, path: Path, body: Mapping[str, Any]) -> None:
        db.execute("SAVEPOINT document")
        try:
            json_document.insert_document(db, body)
        except _BROKEN as error:
            db.execute("ROLLBACK TO document")
            self._skip_file(path, str(error))
        finally:
            db.execute("RELEASE document")

    def _skip_file(self, path: Path, why: str) -> None:
        self._unreadable.add(path)
        log.warning("%s is skipped: %s", path, why)

    def _load_bindings(self, db: sqlite3.Connection) -> None:
        path = self._directory / "bindings.json"
        try:
            rows = json.loads(path.read_bytes())["bindings"]
            places = [(row["namespace"], row["root"], row["path"], row["session"]) for row in rows]
            db.executemany("INSERT INTO bindings (namespace, root, path, session) VALUES (?, ?, ?, ?)", places)
        except FileNotFoundError:
            return
        except (OSError, *_BROKEN) as error:
            self._skip_file(path, str(error))

    # -------------------------------------------------------------------------------------------- saving

    def save(self, db: sqlite3.Connection) -> None:
        """Write the documents of the sessions that the transaction changed. If writing fails, the transaction fails.

        Each file is replaced as a whole, so a process that is killed in between leaves complete files. Bindings are
        written first and documents are deleted last.
        """
        dirty = set(db.execute("SELECT namespace, session FROM temp.dirty").fetchall()) | self._unsaved
        if not dirty:
            return
        contents = {self._path(place): self._content(db, place) for place in sorted(dirty)}
        for path in contents:
            if path in self._unreadable and path.exists():
                raise StoreCorrupt(
                    f"{path} cannot be read and will not be overwritten.",
                    hint="Repair it or move it away, then open the store again. Other sessions are not affected.",
                )
        partial: dict[Path, Path] = {}
        try:
            for path, content in contents.items():
                if content is not None:
                    part = path.with_name(f".{secrets.token_hex(8)}.part")
                    partial[path] = atomic_file.write_synced(part, content)
            # From the first rename on, documents may be newer than the database would be after a rollback. They are
            # written again by the next save.
            self._unsaved |= dirty
            self._replace(contents, partial)
        finally:
            for left in partial.values():
                left.unlink(missing_ok=True)
        self._unsaved.clear()
        db.execute("DELETE FROM temp.dirty")

    def _replace(self, contents: Mapping[Path, bytes | None], partial: Mapping[Path, Path]) -> None:
        for path in partial:
            os.replace(partial[path], path)
        for path, content in contents.items():
            if content is None:
                path.unlink(missing_ok=True)
        for folder in {path.parent for path in contents}:
            atomic_file.sync_directory(folder)

    def _path(self, place: tuple[str, str]) -> Path:
        if place == BINDINGS:
            return self._directory / "bindings.json"
        return self.documents / json_document.file_name(SessionKey(*place))

    def _content(self, db: sqlite3.Connection, place: tuple[str, str]) -> bytes | None:
        if place != BINDINGS:
            return json_document.read_document(db, SessionKey(*place), len(self._scripts), self._tables)
        rows = db.execute("SELECT namespace, root, path, session FROM bindings ORDER BY namespace, root, path")
        names = ("namespace", "root", "path", "session")
        return json_document.to_bytes({"bindings": [dict(zip(names, row, strict=True)) for row in rows]})


def _create_triggers(db: sqlite3.Connection, tables: Mapping[str, list[str]]) -> None:
    """Create temporary triggers that record every session of which a row changes."""
    db.execute("CREATE TEMP TABLE dirty (namespace TEXT, session TEXT, PRIMARY KEY (namespace, session)) WITHOUT ROWID")
    for table, columns in {**tables, "bindings": []}.items():
        id = "id" if table == "sessions" else "session"
        # The trigger watches only the columns that a document contains. Counters and the progress of the search index
        # change without changing the document.
        changed = f" OF {', '.join(columns)}" if table == "sessions" else ""
        for event, row in (("INSERT", "NEW"), (f"UPDATE{changed}", "NEW"), ("DELETE", "OLD")):
            place = "'', 'bindings'" if table == "bindings" else f"{row}.namespace, {row}.{id}"
            db.execute(
                f"CREATE TEMP TRIGGER note_{table}_{event.split()[0].lower()} AFTER {event} ON main.{table} BEGIN"
                f" INSERT OR IGNORE INTO dirty VALUES ({place}); END"
            )
