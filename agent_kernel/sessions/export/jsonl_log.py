"""One file of JSON lines for each session, written while turns run and never rewritten: for grep, tail and git.

    {"type": "session", "version": 1, "id": ..., "namespace": ..., "time": ...}           the first line, once
    {"type": "entry", "seq": ..., "turn": ..., "time": ..., "role": ..., "content": ..., ...}
    {"type": "turn", "turn": ..., "time": ..., "state": ..., "reason": ..., "model": ..., "usage": ..., "record": ...}
    {"type": "compact_boundary", "last": ..., "time": ..., "model": ..., "content": ...}

The store is the truth, this is a copy: redacted as the store is, media by hash, never waited for to be on disk. It
outlives a session that is deleted (``forget`` removes it). A failure harms no turn and is told once.
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

from agent_kernel.core.session import Item, SessionKey, Summary, Turn
from agent_kernel.sessions.store.private_store import is_private

VERSION = 1
SUFFIX = ".jsonl"
MAX_NAME = 120
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

log = logging.getLogger(__name__)


class LiveTranscripts:
    """Files in ``directory``, made when the first session is written; readable by their owner only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._told = False
        self._problem = ""

    def path(self, key: SessionKey) -> Path:
        """The readable beginning of the id, and a hash that no other session has, whatever letters files may have."""
        digest = hashlib.sha256(f"{key.namespace}\0{key.id}".encode()).hexdigest()[:12]
        return self.directory / f"{quote(key.id, safe=' ')[:MAX_NAME].lstrip('.')}-{digest}{SUFFIX}"

    def forget(self, key: SessionKey) -> bool:
        """Removes the file of a session; whether there was one."""
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()
            return True
        return False

    async def entries(self, key: SessionKey, items: Sequence[Item]) -> None:
        lines = [{"seq": item.seq, "turn": item.turn, "time": item.time, **item.message.to_json()} for item in items]
        await self._write(key, [{"type": "entry", **line} for line in lines])

    async def ended(self, turn: Turn, ending: Mapping[str, Any]) -> None:
        body = {"type": "turn", "turn": turn.id, "time": time.time(), "model": turn.model, **ending}
        await self._write(turn.key, [body])

    async def summarised(self, summary: Summary) -> None:
        body = {"type": "compact_boundary", "last": summary.last, "time": summary.time, "model": summary.model}
        await self._write(summary.key, [{**body, "content": summary.text}])

    def take_problem(self) -> str:
        """What went wrong, once in the life of this process; empty if nothing did."""
        problem, self._problem = self._problem, ""
        return problem

    async def _write(self, key: SessionKey, bodies: Sequence[Mapping[str, Any]]) -> None:
        if not bodies or is_private(key.id):
            return
        try:
            await asyncio.to_thread(self._append, key, b"".join(map(_line, bodies)))
        except (OSError, ValueError) as error:
            log.warning("the transcript of session %s could not be written: %s", key.id, type(error).__name__)
            if not self._told:
                self._told = True
                reason = getattr(error, "strerror", None) or type(error).__name__
                self._problem = (
                    f"The transcript in {self.directory} can not be written ({reason}); the session is kept."
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
    """The lines that can be read, in order; what can not is left out with a warning. A missing file has none."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    for number, line in enumerate(raw.splitlines(), start=1):
        try:
            body = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            body = None
            log.warning("line %d of %s can not be read", number, path.name)
        if isinstance(body, dict):
            found.append(body)
    return found


def _begin(path: Path, key: SessionKey) -> None:
    """The file with its first line, whole or not at all: whoever comes second finds it there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    head = {"type": "session", "version": VERSION, "id": key.id, "namespace": key.namespace, "time": time.time()}
    fresh = path.with_name(f".{secrets.token_hex(8)}.tmp")
    _create(fresh, _line(head))
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links: whole in all but a crash at this moment
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
    """Somebody died while writing the last line: it gets an end, so that it spoils no other."""
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
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode() + b"\n"
