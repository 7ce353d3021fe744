"""NAME.agent.json beside NAME.ipynb: the conversation that travels with the file.

Saving a notebook only marks it; one writer, off the event loop, brings sidecars up to date. A file that this store
neither wrote nor knows is never written over: the new one goes to NAME.agent.conflict.json.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from jupyter_core.utils import ensure_async

from agent_kernel.errors import AgentKernelError, InvalidRequest
from agent_kernel.sessions.model import SessionKey
from agent_kernel.sessions.private import is_private
from agent_kernel.sessions.snapshot import snapshot
from agent_kernel.sessions.store import SessionStore
from agent_kernel.sessions.transcript import Exported, Transcript, export, parse
from agent_kernel.settings import Settings
from jupyter_ext.notebooks import SUFFIX, Notebooks
from jupyter_ext.sidecar_file import SidecarFile

log = logging.getLogger(__name__)
SETTLE_S = 0.2
"""Saves and ends of turns that come together are written once."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A notebook whose sidecar may be out of date; whose session it is bound to."""

    namespace: str
    path: str


class Sidecars:
    """``is_hidden`` is the contents manager's. What could not be written stays marked until the next save or turn;
    ``problem`` says so meanwhile."""

    def __init__(
        self,
        store: SessionStore,
        notebooks: Notebooks,
        settings: Settings,
        is_hidden: Callable[[str], bool | Awaitable[bool]],
        *,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._store = store
        self._notebooks = notebooks
        self._export = settings.export
        self._data_dir = settings.data_dir
        self._is_hidden = is_hidden
        self._settle_s = settle_s
        self._root = Path(notebooks.root)
        self._marked: set[Mark] = set()
        self._problems: dict[Mark, str] = {}
        self._touches: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._files = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
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

    async def touch(self, key: SessionKey) -> None:
        """The session has changed: its notebooks that were saved before get it."""
        if self._export == "off":
            return
        try:
            paths = await self._notebooks.paths(key)
        except AgentKernelError as error:
            log.warning("sidecars of session %s are not written: %s", key.id, error)
            return
        for path in paths:
            if await asyncio.to_thread((self._root / path).is_file):
                self._mark(Mark(key.namespace, path))

    def problem(self, namespace: str, path: str | None) -> str:
        """Why the notebook's sidecar is out of date, if it is."""
        return self._problems.get(Mark(namespace, path or ""), "")

    async def renamed(self, old: str, new: str) -> None:
        """Sidecars beside the notebooks of a renamed directory have moved with it."""
        if old.endswith(SUFFIX) and new.endswith(SUFFIX):
            async with self._files:
                await self._change(partial(self._file(old).move, self._file(new)))
        for mark in [mark for mark in (*self._marked, *self._problems) if mark.path == old]:
            self._marked.discard(mark)
            self._problems.pop(mark, None)
            self._mark(Mark(mark.namespace, new))

    async def deleted(self, namespace: str, path: str) -> None:
        """A sidecar goes with its notebook, unless it holds what the store does not; the session stays."""
        if path.endswith(SUFFIX):
            async with self._files:
                known = await self._known(namespace, path)
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
            key = await self._notebooks.bound(mark.namespace, mark.path)
            if key is None or is_private(key.id) or await ensure_async(self._is_hidden(mark.path)):
                return
            file = self._file(mark.path)
            exported = await self._document(key)
            if exported is None:
                return
            known = await self._known(mark.namespace, mark.path)
        except AgentKernelError as error:
            self._failed(mark, error.message)
            return
        try:
            outcome = await asyncio.to_thread(file.write, exported.document, exported.files, known)
        except OSError as error:
            self._failed(mark, error.strerror or str(error))
            return
        self._problems.pop(mark, None)
        if outcome == "conflict":
            log.warning("%s holds a conversation that is not in this store; wrote %s", file.main, file.conflict.name)

    def _failed(self, mark: Mark, reason: str) -> None:
        """Told once, and again when it is another reason."""
        problem = (
            f"The conversation was not saved beside {PurePosixPath(mark.path).name}: {reason}. It is in the store."
        )
        if self._problems.get(mark) != problem:
            log.warning("%s: %s", self._file(mark.path).main, problem)
        self._problems[mark] = problem

    async def _document(self, key: SessionKey) -> Exported | None:
        """None for an empty session, and while a turn runs: its calls may have no answer yet, and its end marks the
        notebook again."""
        whole = await snapshot(self._store, key)
        if whole is None or not whole.items or any(turn.state == "open" for turn in whole.turns):
            return None
        return await asyncio.to_thread(export, whole)

    def _file(self, path: str) -> SidecarFile:
        """In ``data_dir`` mode, roots are kept apart by their hash."""
        name = f"{path.removesuffix(SUFFIX)}.agent.json"
        if self._export == "on":
            return SidecarFile(self._root / name)
        root = hashlib.sha256(str(self._root).encode()).hexdigest()[:16]
        return SidecarFile(self._data_dir / "transcripts" / root / name, make_parents=True)

    async def _known(self, namespace: str, path: str) -> Callable[[bytes], bool]:
        """Tells whether a sidecar holds nothing that is not in the store: it names the session that lies there now,
        which is in the store, and no later revision of it."""
        present = await asyncio.to_thread(_read, self._file(path).main)
        session = await self._store.info(SessionKey(namespace, present.session.key.id)) if present else None
        revisions = {session.key.id: session.revision} if session else {}

        def known(body: bytes) -> bool:
            transcript = _parsed(body)
            if transcript is None:
                return False
            return transcript.session.revision <= revisions.get(transcript.session.key.id, -1)

        return known

    async def _change(self, change: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(change)
        except OSError as error:
            log.warning("a sidecar did not follow its notebook: %s", error)


def _parsed(body: bytes) -> Transcript | None:
    try:
        return parse(body)
    except InvalidRequest:
        return None


def _read(path: Path) -> Transcript | None:
    try:
        return _parsed(path.read_bytes())
    except OSError:
        return None
