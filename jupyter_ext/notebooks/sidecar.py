"""NAME.agent.json beside NAME.ipynb: the conversation that travels with the file.

Saving a notebook only marks it; one writer, off the event loop, brings sidecars up to date. A file that this store
neither wrote nor knows is never written over: the new one goes to NAME.agent.conflict.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from filelock import FileLock, Timeout
from jupyter_core.utils import ensure_async

from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Session, SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.sessions.export.consistent_read import read_snapshot
from agent_kernel.sessions.export.transcript import Exported, Transcript, export, parse
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.notebooks.bindings import SUFFIX, Notebooks
from jupyter_ext.notebooks.sidecar_file import Outcome, SidecarFile

log = logging.getLogger(__name__)
SETTLE_S = 0.2
"""Saves and ends of turns that come together are written once."""
LOCK_S = 10.0
"""How long another server of the same user may take to write a sidecar."""
MAX_VALUES = 20_000_000
"""Of a sidecar that is read to know it again; what comes into the store has a tighter limit."""
UNREADABLE = "unreadable"
"""Instead of the hash of what can not be read."""
_TRIES = 3
MB = 2**20


@dataclass(frozen=True, slots=True)
class Mark:
    """A notebook whose sidecar may be out of date; whose session it is bound to."""

    namespace: str
    path: str


@dataclass(frozen=True, slots=True)
class Saved:
    """``time`` in seconds since the epoch, ``size`` in bytes, without media beside it."""

    time: float
    size: int


class Overtaken(Exception):
    """Another server of this store has written a later revision meanwhile."""


class Sidecars:
    """``is_hidden`` is the contents manager's; ``local`` says that its notebooks are files of this machine. What could
    not be written stays marked until the next save or turn; ``problem`` says so meanwhile."""

    def __init__(
        self,
        store: SessionStore,
        notebooks: Notebooks,
        settings: Settings,
        is_hidden: Callable[[str], bool | Awaitable[bool]],
        *,
        local: bool = True,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._store = store
        self._notebooks = notebooks
        self._export = settings.export if local else "off"
        self._away = settings.export != "off" and not local
        self._data_dir = settings.data_dir
        self._max_bytes = settings.export_max_mb * MB
        self._is_hidden = is_hidden
        self._settle_s = settle_s
        self._root = Path(notebooks.root)
        self._marked: set[Mark] = set()
        self._without_bak: set[Mark] = set()
        self._problems: dict[Mark, str] = {}
        self._conflicts: set[Mark] = set()
        self._written: dict[str, str] = {}
        """path -> SHA-256 of what this server wrote there last"""
        self._touches: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._files = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._away:
            log.warning("notebooks are not files of this machine: conversations are in the store only")
        self._writer = asyncio.create_task(self._keep_writing(), name="sidecar writer")

    def mark(self, namespace: str, os_path: str) -> None:
        """The notebook was saved."""
        path = Path(os_path)
        if self._export != "off" and path.suffix == SUFFIX and path.is_relative_to(self._root):
            self._mark(Mark(namespace, path.relative_to(self._root).as_posix()))

    def turn_ended(self, key: SessionKey) -> None:
        task = asyncio.create_task(self.touch(key))
        self._touches.add(task)
        task.add_done_callback(self._touches.discard)

    async def touch(self, key: SessionKey, *, forget: bool = False) -> None:
        """The session has changed: its notebooks that were saved before get it. ``forget``: the version before goes."""
        if self._export == "off" or is_private(key.id):
            return
        try:
            paths = await self._notebooks.paths(key)
        except AgentKernelError as error:
            log.warning("sidecars of session %s are not written: %s", key.id, error)
            return
        for path in paths:
            if await asyncio.to_thread((self._root / path).is_file):
                self._without_bak |= {Mark(key.namespace, path)} if forget else set()
                self._mark(Mark(key.namespace, path))

    def problem(self, namespace: str, path: str | None) -> str:
        """Why the notebook's sidecar is out of date or another one, if it is."""
        mark = Mark(namespace, path or "")
        if path and mark in self._conflicts:
            file = self._file(path)
            return (
                f"{file.main.name} holds a conversation that is not in this store; this one is in {file.conflict.name}."
            )
        away = "Notebooks of this server are not files of this machine: the conversation is in the store only."
        return self._problems.get(mark, away if path and self._away else "")

    async def renamed(self, old: str, new: str) -> None:
        """Sidecars beside the notebooks of a renamed directory have moved with it."""
        if old.endswith(SUFFIX) and new.endswith(SUFFIX) and self._export != "off":
            async with self._files:
                await self._change(partial(self._file(old).move, self._file(new)))
        for mark in [mark for mark in (*self._marked, *self._problems) if mark.path == old]:
            self._marked.discard(mark)
            self._problems.pop(mark, None)
            self._mark(Mark(mark.namespace, new))

    async def deleted(self, namespace: str, path: str) -> None:
        """A sidecar goes with its notebook, unless it holds what the store does not; the session stays."""
        if path.endswith(SUFFIX) and self._export != "off":
            async with self._files:
                known = await self._known(namespace, path, None)
                await self._change(partial(self._file(path).remove, known))

    async def aclose(self) -> None:
        """Writes what is marked."""
        if self._touches:
            await asyncio.wait(self._touches)
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        await self.write_marked()

    async def write_marked(self) -> None:
        marked, self._marked = self._marked, set()
        for mark in marked:
            async with self._files:
                await self._write(mark)

    def file(self, path: str) -> SidecarFile | None:
        """Of a notebook, where sidecars are written."""
        return None if self._export == "off" else self._file(path)

    async def saved(self, path: str) -> Saved | None:
        """When the document beside a notebook was written, by whomever; None where there is none."""
        file = self.file(path)

        def look() -> Saved | None:
            try:
                facts = file.main.stat() if file else None
            except OSError:
                return None
            return Saved(facts.st_mtime, facts.st_size) if facts else None

        return await asyncio.to_thread(look)

    def parsed(self, path: Path) -> tuple[Transcript | None, str]:
        """(what a sidecar says, the hash of its bytes); None for what is no document of ours. Blocking."""
        try:
            body = SidecarFile(path).read(4 * self._max_bytes)
        except OSError:
            return None, UNREADABLE
        return (None, "") if body is None else (_parsed(body), hashlib.sha256(body).hexdigest())

    def _mark(self, mark: Mark) -> None:
        self._marked.add(mark)
        self._wake.set()

    async def _keep_writing(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._settle_s)
            self._wake.clear()
            await self.write_marked()

    async def _write(self, mark: Mark) -> None:
        try:
            for _ in range(_TRIES):
                with contextlib.suppress(Overtaken):
                    await self._write_once(mark)
                    return
            self._mark(mark)
        except AgentKernelError as error:
            self._failed(mark, error.message)
        except Timeout:
            self._failed(mark, "another server is writing")
        except OSError as error:
            self._failed(mark, error.strerror or str(error))

    async def _write_once(self, mark: Mark) -> None:
        key = await self._notebooks.bound(mark.namespace, mark.path)
        if key is None or is_private(key.id) or await ensure_async(self._is_hidden(mark.path)):
            return
        whole = await self._whole(key)
        if whole is None:
            return
        exported = await asyncio.to_thread(export, whole)
        size = len(exported.document) + sum(map(len, exported.files.values()))
        if size > self._max_bytes:
            self._failed(mark, f"it has {size / MB:,.0f} MB, more than export_max_mb = {self._max_bytes // MB}")
            return
        known = await self._known(mark.namespace, mark.path, whole.session)
        self._wrote(mark, exported, await asyncio.to_thread(self._locked, self._file(mark.path), exported, known))

    def _locked(self, file: SidecarFile, exported: Exported, known: Callable[[bytes], bool]) -> Outcome:
        """One server of this user at a time looks and writes."""
        with _lock(self._data_dir):
            return file.write(exported.document, exported.files, known)

    def _wrote(self, mark: Mark, exported: Exported, outcome: Outcome) -> None:
        self._problems.pop(mark, None)
        file = self._file(mark.path)
        if outcome == "conflict":
            if mark not in self._conflicts:
                log.warning("%s: it is not in this store; wrote %s", file.main, file.conflict.name)
            self._conflicts.add(mark)
            return
        self._conflicts.discard(mark)
        self._written[mark.path] = hashlib.sha256(exported.document).hexdigest()
        if mark in self._without_bak:
            self._without_bak.discard(mark)
            file.forget_bak()

    def _failed(self, mark: Mark, reason: str) -> None:
        """Told once, and again when it is another reason."""
        problem = (
            f"The conversation was not saved beside {PurePosixPath(mark.path).name}: {reason}. It is in the store."
        )
        if self._problems.get(mark) != problem:
            log.warning("%s: %s", self._file(mark.path).main, problem)
        self._problems[mark] = problem

    async def _whole(self, key: SessionKey) -> Transcript | None:
        """None for an empty session, and while a turn runs: its calls may have no answer yet, and its end marks the
        notebook again."""
        whole = await read_snapshot(self._store, key)
        if whole is None or not whole.items or any(turn.state == "open" for turn in whole.turns):
            return None
        return whole

    def _file(self, path: str) -> SidecarFile:
        """In ``data_dir`` mode, roots are kept apart by their hash."""
        name = f"{path.removesuffix(SUFFIX)}.agent.json"
        if self._export == "on":
            return SidecarFile(self._root / name)
        root = hashlib.sha256(str(self._root).encode()).hexdigest()[:16]
        return SidecarFile(self._data_dir / "transcripts" / root / name, make_parents=True)

    async def _known(self, namespace: str, path: str, ours: Session | None) -> Callable[[bytes], bool]:
        """Tells whether a sidecar holds nothing that is not in the store: this server wrote it, it was imported, or it
        names a session of the store and no later revision of it. Raises Overtaken for a later one of ``ours`` that is
        in the store too."""
        present = await asyncio.to_thread(_read, self._file(path).main)
        session = await self._store.info(SessionKey(namespace, present.session.key.id)) if present else None
        written, origin = self._written.get(path), origin_of(ours) if ours else None

        def known(body: bytes) -> bool:
            digest = hashlib.sha256(body).hexdigest()
            if digest in (written, origin):
                return True
            found = _parsed(body)
            if found is None or session is None or found.session.key.id != session.key.id:
                return False
            if ours and ours.key == session.key and ours.revision < found.session.revision <= session.revision:
                raise Overtaken
            return found.session.revision <= session.revision

        return known

    async def _change(self, change: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(change)
        except OSError as error:
            log.warning("a sidecar did not follow its notebook: %s", error)


@contextlib.contextmanager
def _lock(data_dir: Path) -> Iterator[None]:
    """Without a place for a lock there is no store on disk either, and so no second server of it. Raises Timeout."""
    if not data_dir.is_dir():
        yield
        return
    with FileLock(data_dir / "sidecars.lock", timeout=LOCK_S):
        yield


def origin_of(session: Session) -> str | None:
    """The hash of the document that the session was imported from."""
    return (session.imported or {}).get("sha256")


def _parsed(body: bytes) -> Transcript | None:
    try:
        return parse(body, max_values=MAX_VALUES)
    except InvalidRequest:
        return None


def _read(path: Path) -> Transcript | None:
    try:
        return _parsed(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None
