"""Writes one JSON Lines file per session for grep, tail and git. Lines are appended while turns run and never changed.

    {"type": "session", "version": 1, "id": ..., "namespace": ..., "time": ...}           the first line, once
    {"type": "entry", "seq": ..., "turn": ..., "time": ..., "role": ..., "content": ..., ...}
    {"type": "turn", "turn": ..., "time": ..., "state": ..., "reason": ..., "model": ..., "usage": ..., "record": ...}
    {"type": "compact_boundary", "last": ..., "time": ..., "model": ..., "content": ...}

The file contains what the store holds, with secrets removed and media named by hash. Writes do not wait for the disk
(no fsync). The file stays when the session is deleted; ``forget`` removes it. A failure does not affect the turn and is
reported once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import Item, SessionKey, Summary, Turn
from agent_kernel.sessions.serialization import dumps
from agent_kernel.sessions.store.private_store import is_private

VERSION = 1
SUFFIX = ".jsonl"
MAX_NAME = 120
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

log = logging.getLogger(__name__)


class LiveTranscripts:
    """The transcript files of all sessions in ``directory``, which is created with the first file. Only their owner can
    read them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._has_warned = False
        self._problem = ""

    def path(self, key: SessionKey) -> Path:
        """Return the path of a session's file. Its name is the beginning of the session id and a hash, so that ids that
        differ only in case get different files."""
        digest = hashlib.sha256(f"{key.namespace}\0{key.id}".encode()).hexdigest()[:12]
        return self.directory / f"{quote(key.id, safe=' ')[:MAX_NAME].lstrip('.')}-{digest}{SUFFIX}"

    def forget(self, key: SessionKey) -> bool:
        """Remove the file of a session. Returns whether it existed."""
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()
            return True
        return False

    async def append_items(self, key: SessionKey, items: Sequence[Item]) -> None:
        lines = [{"seq": item.seq, "turn": item.turn, "time": item.time, **item.message.to_json()} for item in items]
        await self._write(key, [{"type": "entry", **line} for line in lines])

    async def append_end(self, turn: Turn, ending: Mapping[str, Any]) -> None:
        body = {"type": "turn", "turn": turn.id, "time": time.time(), "model": turn.model, **ending}
        await self._write(turn.key, [body])

    async def append_summary(self, summary: Summary) -> None:
        body = {"type": "compact_boundary", "last": summary.last, "time": summary.time, "model": summary.model}
        await self._write(summary.key, [{**body, "content": summary.text}])

    def take_problem(self) -> str:
        """Return the error message of the first failure, and forget it, so that it is reported once; empty if there is
        none to report."""
        problem, self._problem = self._problem, ""
        return problem

    async def _write(self, key: SessionKey, bodies: Sequence[Mapping[str, Any]]) -> None:
        if not bodies or is_private(key.id):
            return
        try:
            await asyncio.to_thread(self._append, key, b"".join(map(_line, bodies)))
        except (OSError, InvalidRequest) as error:
            log.warning("the transcript of session %s could not be written: %s", key.id, type(error).__name__)
            if not self._has_warned:
                self._has_warned = True
                reason = getattr(error, "strerror", None) or type(error).__name__
                self._problem = (
                    f"The transcript in {self.directory} cannot be written ({reason}). The session itself is stored."
                )

    def _append(self, key: SessionKey, lines: bytes) -> None:
        path = self.path(key)
        with self._lock:
            try:
                file = os.open(path, _FLAGS)
            except FileNotFoundError:
                _begin(path, key)
                file = os.open(path, _FLAGS)
            try:
                _write_all(file, b"\n" + lines if _is_torn(file) else lines)
            finally:
                os.close(file)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects in a transcript file, in order; empty for a missing file. Unreadable lines are logged and
    left out."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    bodies: list[dict[str, Any]] = []
    for number, line in enumerate(raw.splitlines(), start=1):
        try:
            body = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            body = None
            log.warning("line %d of %s cannot be read", number, path.name)
        if isinstance(body, dict):
            bodies.append(body)
    return bodies


def _begin(path: Path, key: SessionKey) -> None:
    """Create the file together with its first line, in one step. If another process creates it at the same time, that
    file is used."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    head = {"type": "session", "version": VERSION, "id": key.id, "namespace": key.namespace, "time": time.time()}
    fresh = path.with_name(f".{secrets.token_hex(8)}.tmp")
    _create(fresh, _line(head))
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    except OSError:  # without hard links, the file is complete unless a crash happens just now
        with contextlib.suppress(FileExistsError):
            _create(path, _line(head))
    finally:
        fresh.unlink()


def _create(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_all(file, data)
    finally:
        os.close(file)


def _is_torn(file: int) -> bool:
    """Return whether the last line of the open file lacks its line end because a writer crashed. The caller then writes
    a line end first, so that the next line stays readable."""
    size = os.fstat(file).st_size
    if not size:
        return False
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) != b"\n"


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _line(body: Mapping[str, Any]) -> bytes:
    return dumps(body).encode() + b"\n"
