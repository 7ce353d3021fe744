"""Finds, creates and changes the session of each notebook, or of a kernel without a notebook (its binding). Follows
renames and deletions of files that go through this server."""

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
    """The interface of Jupyter's session manager, which lists the documents that have a kernel."""

    def list_sessions(self) -> Awaitable[list[dict[str, Any]]]: ...


class Notebooks:
    """The bindings of notebooks and kernels to sessions.

    ``root`` is the directory that the contents manager serves. If ``titled`` is false, new sessions get no title.

    A place is a notebook's path below the root, or ``kernel:ID``. Before a session is created for a notebook,
    ``find_arriving`` is called. If a session came with the notebook's file, ``find_arriving`` binds that session and
    returns it. ``on_bound`` is called with the namespace and the place of each binding that has changed, ``on_title``
    with each session that has got a new title.
    """

    def __init__(self, store: SessionStore, sessions: SessionManager, root: str, *, titled: bool = True) -> None:
        self.root = root
        self._titled = titled
        self._store = store
        self._sessions = sessions
        self._renames: dict[str, str] = {}
        self._binding = asyncio.Lock()
        self.unmanaged: dict[str, str] = {}
        self.find_arriving: Callable[[str, str], Awaitable[SessionKey | None]] = _no_session
        self.on_bound: Callable[[str, str], Awaitable[None]] = _ignore
        self.on_title: Callable[[SessionKey], None] = lambda key: None

    async def place(self, kernel: str) -> str:
        """Return the notebook that a kernel runs now, or the place of the kernel itself. ``unmanaged`` maps kernels
        that no Jupyter server manages to their notebooks."""
        if kernel in self.unmanaged:
            return self.current_path(self.unmanaged[kernel])
        for session in await self._sessions.list_sessions():
            if session["kernel"] and session["kernel"]["id"] == kernel and session["type"] == "notebook":
                path = self.current_path(str(session["path"]).strip("/"))
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

    async def bound_session(self, namespace: str, place: str) -> SessionKey | None:
        session = await self._store.bound(namespace, self.root, place)
        return SessionKey(namespace, session) if session else None

    async def ensure_session(self, namespace: str, place: str, title: str = "") -> tuple[SessionKey, bool]:
        """Return the session of the notebook or kernel ``place``, and whether the session was created by this call. One
        call runs at a time, so that two cells that start together share a session."""
        async with self._binding:
            if key := await self.bound_session(namespace, place):
                return key, False
            if came := await self.find_arriving(namespace, place):
                return came, False
            key = SessionKey(namespace, new_id("session"))
            await self._store.create(key, self.new_title(place, title))
            await self.bind(key, place)
            return key, True

    def new_title(self, place: str, title: str = "") -> str:
        """Return the title of a new session of ``place``: the name of the notebook, else ``title``; empty if titles are
        off."""
        return new_session_title(place, title) if self._titled else ""

    async def bind(self, key: SessionKey, place: str) -> None:
        await self._store.bind(key.namespace, self.root, place, key.id)
        await self.on_bound(key.namespace, place)

    async def unbind(self, namespace: str, place: str) -> bool:
        unbound = await self._store.unbind(namespace, self.root, place)
        await self.on_bound(namespace, place)
        return unbound

    async def paths(self, key: SessionKey) -> list[str]:
        """Return the notebooks that are bound to the session."""
        places = await self._store.paths(self.root, key)
        return [place for place in places if not place.startswith((KERNEL, DELETED))]

    async def on_renamed(self, old: str, new: str) -> None:
        """Move the bindings of a renamed file or directory. Clients tell the session manager about a rename later, or
        never; until then, this object translates the kernel's old path."""
        self._renames.pop(new, None)
        self._renames[old] = new
        while len(self._renames) > MAX_RENAMES:
            self._renames.pop(next(iter(self._renames)))
        await self._store.move(self.root, old, new)

    async def follow_name(self, namespace: str, old: str, new: str) -> None:
        """Give the session of a renamed notebook the new name as its title, if its title is the old name."""
        key = await self.bound_session(namespace, new) if is_notebook(new) else None
        session = await self._store.info(key) if key else None
        title = new_session_title(new, "")
        if key and session and session.title == new_session_title(old, "") != title:
            await self._store.rename(key, title)
            self.on_title(key)

    async def on_deleted(self, path: str) -> None:
        """Detach the bindings of a deleted file. The sessions stay in the store, but a new file with the same name does
        not get them."""
        await self._store.move(self.root, path, f"{DELETED}{new_id('at')}/{path}")

    def on_created(self, path: str) -> None:
        """Forget that ``path`` was the former name of a renamed file: a new file now has this name."""
        self._renames.pop(path, None)

    def current_path(self, path: str) -> str:
        """Return the present path of a notebook that had this path earlier."""
        for _ in range(len(self._renames)):
            following = next((old for old in self._renames if path == old or path.startswith(old + "/")), None)
            if following is None:
                return path
            path = self._renames[following] + path[len(following) :]
        return path


async def _no_session(namespace: str, place: str) -> SessionKey | None:
    return None


async def _ignore(namespace: str, place: str) -> None:
    return None


def is_notebook(path: str) -> bool:
    """Return whether ``path`` is a notebook's path below the contents root, as clients write it."""
    parts = path.split("/")
    return path.endswith(SUFFIX) and not {"", ".", ".."} & set(parts) and "\\" not in path and "\0" not in path


def new_session_title(place: str, title: str) -> str:
    """Return the title of a new session: the name of its notebook, else ``title``."""
    return title if place.startswith(KERNEL) else PurePosixPath(place).stem
