"""The engine that a person chose for a session. Turns that name no engine use it. Most choices are stored on disk, so
that they survive a restart of the server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from pathlib import Path

from agent_kernel.core.session import SessionKey
from agent_kernel.engines.openai_api.endpoint import is_url
from agent_kernel.sessions.store.private_store import is_private


class EngineChoices:
    """The engines that people chose, by session.

    ``directory`` holds one small file for each session with a choice; with None, choices are kept in memory only.

    The choice of a URL, and every choice of a private session, is kept in memory only: it must not take effect again
    after a restart without a person's decision.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._chosen: dict[SessionKey, str] = {}

    async def get(self, key: SessionKey) -> str:
        """Return the name of the engine that was chosen for the session; empty if none was."""
        if key not in self._chosen:
            self._chosen[key] = await asyncio.to_thread(self._read, key)
        return self._chosen[key]

    async def set(self, key: SessionKey, engine: str) -> None:
        """Choose ``engine`` for the session. An empty name removes the choice."""
        self._chosen[key] = engine
        await asyncio.to_thread(self._write, key, "" if is_url(engine) or is_private(key.id) else engine)

    def _path(self, key: SessionKey) -> Path | None:
        name = hashlib.sha256(f"{len(key.namespace)} {key.namespace}{key.id}".encode()).hexdigest()[:32]
        return self._directory / f"{name}.json" if self._directory else None

    def _read(self, key: SessionKey) -> str:
        path = self._path(key)
        try:
            return str(json.loads(path.read_text("utf-8"))["engine"]) if path else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _write(self, key: SessionKey, engine: str) -> None:
        path = self._path(key)
        if path is None:
            return
        if not engine:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.new")
        fresh.write_text(json.dumps({"namespace": key.namespace, "session": key.id, "engine": engine}), "utf-8")
        with contextlib.suppress(FileNotFoundError):  # another server wrote the same choice
            fresh.replace(path)
