"""The session store of readable files: a JSON document per session, for people who look into them or keep them in git.

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

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import atomic_file
from agent_kernel.sessions.blob_files import BlobFiles
from agent_kernel.sessions.store import json_document, schema
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.moved_store_check import Presence
from agent_kernel.sessions.store.sqlite import NONE, SqliteStore
from agent_kernel.sessions.tables.quota import Quota

log = logging.getLogger(__name__)
BINDINGS = ("", "bindings")
"""Stands for the bindings where a session is named: no session has an empty namespace."""
_BROKEN = (sqlite3.Error, KeyError, TypeError, ValueError, AttributeError, InvalidRequest)


class FilesStore(SqliteStore):
    """What a SqliteStore does, with a document for every session in ``directory`` instead of rows in a file.

    All documents are read when the store is opened and are held in memory; every change, also a heartbeat, writes the
    whole document of its session anew and waits for the disk, so an append to n items takes time in proportion to n.
    For some hundred sessions of some hundred turns; the default store is for more.

    One process at a time: another one gets StoreError with the name of the holder. A document that can not be read is
    logged and left alone: its session is not there, and nothing can be written to it (StoreCorrupt) until the file is
    repaired or moved away and the store opened again; the others are not affected. Other files are not touched. While
    the directory is gone every call raises StoreError; one that is put into its place is read.
    """

    def __init__(self, directory: str | Path, *, quota: Quota = NONE, clock: Callable[[], float] = time.time) -> None:
        super().__init__(None, quota=quota, clock=clock)
        self.directory = Path(directory).absolute()
        self._folder = _Folder(self.directory)
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
        """Waits for what was begun and lets another process open the directory; idempotent."""
        await super().aclose()
        self._folder.release()


class _Folder:
    """The documents, on the store's thread. ``_strange`` are files that are not ours to write over; ``_behind`` is what
    a failed saving may have left as it must not stay."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.documents = directory / "sessions"
        self._lock = filelock.FileLock(directory / "lock", timeout=0, thread_local=False)
        self._lock_file = Presence(directory / "lock", str(directory))
        self._scripts = schema.scripts()
        self._strange: set[Path] = set()
        self._behind: set[tuple[str, str]] = set()
        self._tables: dict[str, list[str]] = {}

    # -------------------------------------------------------------------------------------------- opening

    def load(self, db: sqlite3.Connection) -> None:
        """Fills an empty database, and from then on notes which sessions change."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.documents.mkdir(mode=0o700, exist_ok=True)
        self._acquire()
        self._strange.clear()
        found = sorted(self._found(), key=lambda document: (document[0], document[1].name))
        for version, path, body in found:
            schema.migrate(db, None, self._scripts[:version])
            self._take(db, path, body)
        schema.migrate(db, None, self._scripts)
        self._load_bindings(db)
        self._tables = json_document.tables(db)
        _watch(db, self._tables)

    def _acquire(self) -> None:
        """Again where another directory was put into the place of the one that is locked."""
        if self._lock.is_locked and not self._lock_file.is_replaced():
            return
        self._lock.release()
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            raise StoreError(
                f"{self._directory} is in use by {self._holder()}.",
                hint="The files store has one process at a time. Stop that one, or use the sqlite store.",
            ) from error
        self._lock_file.note()
        holder = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        _write(self._directory / "holder.json", json_document.encoded(holder))

    def _holder(self) -> str:
        try:
            holder = json.loads((self._directory / "holder.json").read_bytes())
            return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def release(self) -> None:
        self._lock.release()

    def _found(self) -> list[tuple[int, Path, Mapping[str, Any]]]:
        """(version, path, document) of those that can be read."""
        found = []
        for path in self.documents.glob("*.json"):
            try:
                body = json_document.decoded(path.read_bytes())
                if body is None:
                    self._leave(path, "it is not a session of agent-kernel")
                elif json_document.file_name(SessionKey(body["namespace"], body["id"])) != path.name:
                    self._leave(path, "it has the name of another session; is it a copy?")
                else:
                    found.append((json_document.checked(body, len(self._scripts)), path, body))
            except (OSError, *_BROKEN) as error:
                self._leave(path, str(error))
        return found

    def _take(self, db: sqlite3.Connection, path: Path, body: Mapping[str, Any]) -> None:
        db.execute("SAVEPOINT document")
        try:
            json_document.write(db, body)
        except _BROKEN as error:
            db.execute("ROLLBACK TO document")
            self._leave(path, str(error))
        finally:
            db.execute("RELEASE document")

    def _leave(self, path: Path, why: str) -> None:
        self._strange.add(path)
        log.warning("%s is left alone: %s", path, why)

    def _load_bindings(self, db: sqlite3.Connection) -> None:
        path = self._directory / "bindings.json"
        try:
            rows = json.loads(path.read_bytes())["bindings"]
            places = [(row["namespace"], row["root"], row["path"], row["session"]) for row in rows]
            db.executemany("INSERT INTO bindings (namespace, root, path, session) VALUES (?, ?, ?, ?)", places)
        except FileNotFoundError:
            return
        except (OSError, *_BROKEN) as error:
            self._leave(path, str(error))

    # -------------------------------------------------------------------------------------------- saving

    def save(self, db: sqlite3.Connection) -> None:
        """Writes what the transaction changed; if that fails, the transaction does. A process that is killed between
        two files leaves each of them whole; bindings go first and what is deleted goes last."""
        dirty = set(db.execute("SELECT namespace, session FROM temp.dirty").fetchall()) | self._behind
        if not dirty:
            return
        wanted = {self._path(place): self._content(db, place) for place in sorted(dirty)}
        for path in wanted:
            if path in self._strange and path.exists():
                raise StoreCorrupt(
                    f"{path} can not be read, and is not written over.",
                    hint="Repair it or move it away, then open the store again. Other sessions can be used.",
                )
        partial: dict[Path, Path] = {}
        try:
            for path, content in wanted.items():
                if content is not None:
                    partial[path] = _beside(path, content)
            self._behind |= dirty
            self._replace(wanted, partial)
        finally:
            for left in partial.values():
                left.unlink(missing_ok=True)
        self._behind.clear()
        db.execute("DELETE FROM temp.dirty")

    def _replace(self, wanted: Mapping[Path, bytes | None], partial: Mapping[Path, Path]) -> None:
        for path in partial:
            os.replace(partial[path], path)
        for path, content in wanted.items():
            if content is None:
                path.unlink(missing_ok=True)
        for folder in {path.parent for path in wanted}:
            atomic_file.sync_directory(folder)

    def _path(self, place: tuple[str, str]) -> Path:
        if place == BINDINGS:
            return self._directory / "bindings.json"
        return self.documents / json_document.file_name(SessionKey(*place))

    def _content(self, db: sqlite3.Connection, place: tuple[str, str]) -> bytes | None:
        if place != BINDINGS:
            return json_document.read(db, SessionKey(*place), len(self._scripts), self._tables)
        rows = db.execute("SELECT namespace, root, path, session FROM bindings ORDER BY namespace, root, path")
        names = ("namespace", "root", "path", "session")
        return json_document.encoded({"bindings": [dict(zip(names, row, strict=True)) for row in rows]})


def _watch(db: sqlite3.Connection, tables: Mapping[str, list[str]]) -> None:
    """Triggers of this connection note every session of which a row changes."""
    db.execute("CREATE TEMP TABLE dirty (namespace TEXT, session TEXT, PRIMARY KEY (namespace, session)) WITHOUT ROWID")
    for table, columns in {**tables, "bindings": []}.items():
        id = "id" if table == "sessions" else "session"
        changed = f" OF {', '.join(columns)}" if table == "sessions" else ""
        for event, row in (("INSERT", "NEW"), (f"UPDATE{changed}", "NEW"), ("DELETE", "OLD")):
            place = "'', 'bindings'" if table == "bindings" else f"{row}.namespace, {row}.{id}"
            db.execute(
                f"CREATE TEMP TRIGGER note_{table}_{event.split()[0].lower()} AFTER {event} ON main.{table} BEGIN"
                f" INSERT OR IGNORE INTO dirty VALUES ({place}); END"
            )


def _write(path: Path, data: bytes) -> None:
    os.replace(_beside(path, data), path)


def _beside(path: Path, data: bytes) -> Path:
    return atomic_file.written(path.with_name(f".{secrets.token_hex(8)}.part"), data)
