"""Which session a notebook, or a kernel without one, talks to; follows renames and deletions of this server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey, new_id

KERNEL = "kernel:"
DELETED = "deleted:"
SUFFIX = ".ipynb"
MAX_RENAMES = 200


class SessionManager(Protocol):
    """Jupyter's list of documents that have a kernel."""

    def list_sessions(self) -> Awaitable[list[dict[str, Any]]]: ...


class Notebooks:
    """``root`` is the directory that the contents manager serves.

    A place is a notebook's path below the root, or ``kernel:ID``. ``arriving`` is asked for the session, bound, of a
    notebook that came with one, before another is made; ``told`` hears of each place that is bound anew.
    """

    def __init__(self, store: SessionStore, sessions: SessionManager, root: str) -> None:
        self.root = root
        self._store = store
        self._sessions = sessions
        self._renames: dict[str, str] = {}
        self._binding = asyncio.Lock()
        self.adopted: dict[str, str] = {}
        self.arriving: Callable[[str, str], Awaitable[SessionKey | None]] = _nothing
        self.told: Callable[[str, str], Awaitable[None]] = _unheard

    async def place(self, kernel: str) -> str:
        """The notebook that a kernel runs now, or the kernel itself. ``adopted``: notebooks of kernels that no server
        manages."""
        if kernel in self.adopted:
            return self._renamed(self.adopted[kernel])
        for session in await self._sessions.list_sessions():
            if session["kernel"] and session["kernel"]["id"] == kernel and session["type"] == "notebook":
                path = self._renamed(str(session["path"]).strip("/"))
                return path if is_notebook(path) else KERNEL + kernel
        return KERNEL + kernel

    async def kernel_id(self, path: str) -> str:
        """Return the id of the kernel that runs a notebook now, or an empty string."""
        for session in await self._sessions.list_sessions():
            if session["kernel"] and str(session["path"]).strip("/") == path:
                return str(session["kernel"]["id"])
        return ""

    def directory(self, place: str) -> Path | None:
        return None if place.startswith(KERNEL) else (Path(self.root) / place).parent

    async def bound(self, namespace: str, place: str) -> SessionKey | None:
        session = await self._store.bound(namespace, self.root, place)
        return SessionKey(namespace, session) if session else None

    async def session(self, namespace: str, place: str, title: str = "") -> tuple[SessionKey, bool]:
        """The session of a place, made and bound if it has none, and whether it was made. One at a time, so that two
        cells that start together share it."""
        async with self._binding:
            if key := await self.bound(namespace, place):
                return key, False
            if came := await self.arriving(namespace, place):
                return came, False
            key = SessionKey(namespace, new_id("session"))
            await self._store.create(key, called(place, title))
            await self.bind(key, place)
            return key, True

    async def bind(self, key: SessionKey, place: str) -> None:
        await self._store.bind(key.namespace, self.root, place, key.id)
        await self.told(key.namespace, place)

    async def unbind(self, namespace: str, place: str) -> bool:
        unbound = await self._store.unbind(namespace, self.root, place)
        await self.told(namespace, place)
        return unbound

    async def paths(self, key: SessionKey) -> list[str]:
        """Notebooks that talk to the session."""
        places = await self._store.paths(self.root, key)
        return [place for place in places if not place.startswith((KERNEL, DELETED))]

    async def renamed(self, old: str, new: str) -> None:
        """A file or a directory has another name. Clients tell the session manager later, or never: until then a
        kernel's path is looked up here."""
        self._renames.pop(new, None)
        self._renames[old] = new
        while len(self._renames) > MAX_RENAMES:
            self._renames.pop(next(iter(self._renames)))
        await self._store.move(self.root, old, new)

    async def deleted(self, path: str) -> None:
        """The sessions stay in the store; another file of that name later does not get them."""
        await self._store.move(self.root, path, f"{DELETED}{new_id('at')}/{path}")

    def created(self, path: str) -> None:
        """A file was saved under this name: it is no old name of another one."""
        self._renames.pop(path, None)

    def present_path(self, path: str) -> str:
        """What a notebook is called now that had this path a while ago."""
        return self._renamed(path)

    def _renamed(self, path: str) -> str:
        for _ in range(len(self._renames)):
            following = next((old for old in self._renames if path == old or path.startswith(old + "/")), None)
            if following is None:
                return path
            path = self._renames[following] + path[len(following) :]
        return path


async def _nothing(namespace: str, place: str) -> SessionKey | None:
    return None


async def _unheard(namespace: str, place: str) -> None:
    return None


def is_notebook(path: str) -> bool:
    """A path below the contents root, as clients write it; any other text names no file."""
    parts = path.split("/")
    return path.endswith(SUFFIX) and not {"", ".", ".."} & set(parts) and "\\" not in path and "\0" not in path


def called(place: str, title: str) -> str:
    """What a new session is called: as its notebook, else as it begins."""
    return title if place.startswith(KERNEL) else PurePosixPath(place).stem
