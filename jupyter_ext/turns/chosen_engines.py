"""Remembers the engine that a person chose for a session. Turns that name no engine use it. Most choices are stored on
disk, or in the database that servers share, so that they survive a restart of the server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.engines.openai_api.endpoint import is_url
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.turns.server_link import ServerLink

SHARED_FOR_S = 5 * 365 * 24 * 3600.0
"""Seconds for which a choice is kept in a shared database."""
MAX_CACHED = 1_000
"""Maximum number of sessions whose file is not read again for every turn."""
ADDRESS_ELSEWHERE = "an address, chosen on another server"
"""Stands for a URL that is known only to the server on which it was chosen. No engine has this name."""


class EngineChoices:
    """The engines that people chose, by session.

    ``directory`` holds one small file for each session with a choice; with None, choices are kept in memory only. With
    a ``link``, the servers that share a store share the choices in its database instead.

    The choice of a URL, and every choice of a private session, is kept in memory only: it must not take effect again
    after a restart without a person's decision, and a URL may contain a password.
    """

    def __init__(self, directory: Path | None, link: ServerLink | None = None) -> None:
        self._directory = directory
        self._shared = None if link is None else _SharedChoices(link)
        self._in_memory: dict[SessionKey, str] = {}
        self._stored = RecentEntries[SessionKey, str](MAX_CACHED)

    async def get(self, key: SessionKey) -> str:
        """Return the name of the engine that was chosen for the session; empty if none was, and ADDRESS_ELSEWHERE for a
        URL that was chosen on another server. Raises StoreError where choices are shared."""
        if self._shared is not None and not is_private(key.id):
            return await self._shared.get(key)
        if key in self._in_memory:
            return self._in_memory[key]
        if self._directory is None or is_private(key.id):
            return ""
        if key not in self._stored:
            engine = await asyncio.to_thread(self._read, key)
            self._stored.setdefault(key, engine)  # a choice that was made meanwhile stays
        return self._in_memory.get(key) or self._stored[key]

    async def set(self, key: SessionKey, engine: str) -> None:
        """Choose ``engine`` for the session. An empty name removes the choice. Raises StoreError where choices are
        shared."""
        if self._shared is not None and not is_private(key.id):
            await self._shared.set(key, engine)
            return
        if engine and (self._directory is None or is_url(engine) or is_private(key.id)):
            self._in_memory[key] = engine
            stored = ""
        else:
            self._in_memory.pop(key, None)
            stored = engine
        self._stored[key] = stored
        await asyncio.to_thread(self._write, key, stored)

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
        replace_file(path, json.dumps({"namespace": key.namespace, "session": key.id, "engine": engine}).encode())


class _SharedChoices:
    """The choices in a shared database: one value for each session with a choice. If the choice is a URL, the database
    holds only an id of the choice, and the server on which the choice was made remembers the URL under this id. A later
    choice on another server has another id, so the URL does not apply any more."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._urls: dict[SessionKey, tuple[str, str]] = {}

    async def get(self, key: SessionKey) -> str:
        value = await self._link.get_value(key.namespace, _name(key))
        if value is None:
            return ""
        engine, choice = json.loads(value.body)
        remembered, url = self._urls.get(key, ("", ""))
        if choice and choice == remembered:
            return url
        return ADDRESS_ELSEWHERE if choice else str(engine)

    async def set(self, key: SessionKey, engine: str) -> None:
        choice = new_id("choice") if is_url(engine) else ""
        body = json.dumps(["" if choice else engine, choice]).encode() if engine else None
        await self._link.change_value(key.namespace, _name(key), lambda known: body, SHARED_FOR_S)
        self._urls.pop(key, None)
        if choice:
            self._urls[key] = choice, engine


def _name(key: SessionKey) -> str:
    return f"engine/{hashlib.sha256(key.id.encode('utf-8', 'surrogatepass')).hexdigest()}"
