"""Writes sidecars: NAME.agent.json beside NAME.ipynb, the conversation that travels with the notebook file.

Saving a notebook only records that its sidecar is out of date. One background task writes the sidecars in a thread. A
file that this store neither wrote nor knows is never overwritten: the new document goes to NAME.agent.conflict.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from filelock import FileLock, Timeout
from jupyter_core.utils import ensure_async

from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Session, SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.core.shielded_await import RunningTasks, cancel_tasks
from agent_kernel.sessions import storage_locations
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import Exported, Transcript, export, parse
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.notebooks.bindings import SUFFIX, Notebooks
from jupyter_ext.notebooks.sidecar_file import FileStamp, Outcome, SidecarFile

log = logging.getLogger(__name__)
SETTLE_S = 0.2
"""Seconds to wait before writing, so that several saves and ends of turns within this time lead to one write."""
LOCK_S = 10.0
"""Maximum seconds to wait for the lock while another server of the same user writes a sidecar."""
MAX_VALUES = 20_000_000
"""Limit on JSON values of a sidecar that is only compared with the store; the limit for an import is lower."""
UNREADABLE = "unreadable"
"""Used in place of the hash of a file that cannot be read."""
NOT_SAVED = "The conversation was not saved beside {name}: {reason}. It is in the store."
_TRIES = 3
MB = 2**20


@dataclass(frozen=True, slots=True)
class SidecarMark:
    """A notebook whose sidecar may be out of date, and the namespace of the session that it is bound to."""

    namespace: str
    path: str


@dataclass(frozen=True, slots=True)
class SidecarStat:
    """The time and the size of a sidecar. ``time`` is in seconds since the epoch; ``size`` is in bytes, without media
    files."""

    time: float
    size: int


class NewerRevision(Exception):
    """Raised if another server of this store has written a later revision of the session in the meantime."""


class Sidecars:
    """Writes the sidecars of notebooks whose sessions have changed.

    ``is_hidden`` is the contents manager's method of that name. ``local`` says whether the contents manager's notebooks
    are files of this machine. A sidecar that could not be written is tried again at the next save or turn; until then,
    ``problem`` describes the failure.
    """

    def __init__(
        self,
        store: SessionStore,
        notebooks: Notebooks,
        settings: Settings,
        is_hidden: Callable[[str], bool | Awaitable[bool]],
        *,
        local: bool = True,
    ) -> None:
        self._store = store
        self._notebooks = notebooks
        self._export = settings.export if local else "off"
        self._away = settings.export != "off" and not local
        self._data_dir = settings.data_dir
        self._max_bytes = settings.export_max_mb * MB
        self._is_hidden = is_hidden
        self._root = Path(notebooks.root)
        root_name = storage_locations.contents_root_name(str(self._root))
        self._backups = settings.data_dir / storage_locations.SIDECAR_BACKUPS / root_name
        self._transcripts = settings.data_dir / "transcripts" / root_name
        self._marked: set[SidecarMark] = set()
        self._without_bak: set[SidecarMark] = set()
        self._problems: dict[SidecarMark, str] = {}
        self._conflicts: set[SidecarMark] = set()
        self._written: dict[str, str] = {}
        """Maps the path of a sidecar to the SHA-256 of the content that this server last wrote there."""
        self._saved: dict[SidecarMark, tuple[Session, FileStamp | None]] = {}
        """The session that each sidecar contained when this server last checked or wrote it, and the stamp (time, size
        and inode) of the file at that time."""
        self._touches = RunningTasks()
        self._wake = asyncio.Event()
        self._files = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._away:
            log.warning("notebooks are not files on this machine, so conversations are not written beside them")
        self._writer = asyncio.create_task(self._keep_writing(), name="sidecar writer")

    def on_saved(self, namespace: str, os_path: str) -> None:
        """Record that a notebook was saved, so that its sidecar is written soon."""
        path = Path(os_path)
        if self._export != "off" and path.suffix == SUFFIX and path.is_relative_to(self._root):
            self._mark(SidecarMark(namespace, path.relative_to(self._root).as_posix()))

    def on_turn_end(self, key: SessionKey) -> None:
        self._touches.start(self.touch(key))

    async def touch(self, key: SessionKey, *, forget: bool = False) -> None:
        """Note that a session has changed, so that the sidecars of its notebooks are written soon, if the notebooks
        were saved before. ``forget``: also delete the backups."""
        if self._export == "off" or is_private(key.id):
            return
        try:
            paths = await self._notebooks.paths(key)
        except AgentKernelError as error:
            log.warning("sidecars of session %s are not written: %s", key.id, error)
            return
        for path in paths:
            if await asyncio.to_thread((self._root / path).is_file):
                self._without_bak |= {SidecarMark(key.namespace, path)} if forget else set()
                self._mark(SidecarMark(key.namespace, path))

    def problem(self, namespace: str, path: str | None) -> str:
        """Return why the notebook's sidecar is out of date or holds another conversation; empty if all is well."""
        mark = SidecarMark(namespace, path or "")
        if path and mark in self._conflicts:
            file = self._file(path)
            return f"{file.main.name} contains another conversation, so this one was saved in {file.conflict.name}."
        away = "The notebooks of this server are not files on this machine: conversations are only in the store."
        return self._problems.get(mark, away if path and self._away else "")

    async def on_renamed(self, old: str, new: str) -> None:
        """Move the sidecar of a renamed notebook. The sidecars in a renamed directory have already moved with it, but
        their files in the data directory have not."""
        if self._export != "off":
            is_notebook = old.endswith(SUFFIX) and new.endswith(SUFFIX)
            change = partial(self._file(old).move, self._file(new)) if is_notebook else None
            async with self._files:
                await self._change(change or partial(self._move_directory, old, new))
        for mark in [mark for mark in (*self._marked, *self._problems) if mark.path == old]:
            self._marked.discard(mark)
            self._problems.pop(mark, None)
            self._mark(SidecarMark(mark.namespace, new))
        for mark in [mark for mark in self._without_bak if mark.path == old]:
            self._without_bak.discard(mark)
            self._without_bak.add(SidecarMark(mark.namespace, new))

    async def on_deleted(self, namespace: str, path: str) -> None:
        """Delete the sidecar of a deleted notebook, unless it holds content that the store does not. The session
        stays. For a deleted directory, delete the backups of its sidecars."""
        if self._export == "off":
            return
        async with self._files:
            if path.endswith(SUFFIX):
                is_known = await self._is_known_check(namespace, path, None)
                await self._change(partial(self._file(path).remove, is_known))
            elif (self._backups / path).is_dir() and path:
                await self._change(partial(shutil.rmtree, self._backups / path))

    async def aclose(self) -> None:
        """Write all sidecars that are out of date, then stop."""
        await self._touches.wait()
        await cancel_tasks(self._writer)
        await self.write_marked()

    async def write_marked(self) -> None:
        marked, self._marked = self._marked, set()
        for mark in marked:
            async with self._files:
                await self._write(mark)

    def file(self, path: str) -> SidecarFile | None:
        """Return the sidecar file of a notebook; None where sidecars are not written."""
        return None if self._export == "off" else self._file(path)

    async def stat(self, path: str) -> SidecarStat | None:
        """Return the time and the size of the sidecar beside a notebook, whoever wrote it; None if there is none."""
        file = self.file(path)

        def look() -> SidecarStat | None:
            try:
                facts = file.main.stat() if file else None
            except OSError:
                return None
            return SidecarStat(facts.st_mtime, facts.st_size) if facts else None

        return await asyncio.to_thread(look)

    def parse_file(self, path: Path) -> tuple[Transcript | None, str]:
        """Return (transcript, SHA-256 of the file). The transcript is None if the file is not a document of
        agent-kernel. Blocking."""
        try:
            body = SidecarFile(path).read(4 * self._max_bytes)
        except OSError:
            return None, UNREADABLE
        return (None, "") if body is None else (_parse(body), hashlib.sha256(body).hexdigest())

    def _mark(self, mark: SidecarMark) -> None:
        self._marked.add(mark)
        self._wake.set()

    async def _keep_writing(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(SETTLE_S)
            self._wake.clear()
            await self.write_marked()

    async def _write(self, mark: SidecarMark) -> None:
        # The mark is removed before the session is read. Outputs that are cleared during the write are still in this
        # document, and the next write makes it the backup.
        forget = mark in self._without_bak
        self._without_bak.discard(mark)
        try:
            for _ in range(_TRIES):
                with contextlib.suppress(NewerRevision):
                    if await self._write_once(mark) and forget:
                        await asyncio.to_thread(self._file(mark.path).forget_bak)
                        forget = False
                    return
            self._mark(mark)
        except AgentKernelError as error:
            self._record_failure(mark, error.message)
        except Timeout:
            self._record_failure(mark, "another server is writing")
        except OSError as error:
            self._record_failure(mark, error.strerror or str(error))
        finally:
            if forget:
                self._without_bak.add(mark)

    async def _write_once(self, mark: SidecarMark) -> bool:
        """Write the sidecar if it is out of date. Return whether the file now contains the session's current state."""
        key = await self._notebooks.bound_session(mark.namespace, mark.path)
        if key is None or is_private(key.id) or await ensure_async(self._is_hidden(mark.path)):
            return False
        file = self._file(mark.path)
        stamp = await asyncio.to_thread(lambda: file.stamp)
        if stamp and self._saved.get(mark) == (await self._store.info(key), stamp):
            self._problems.pop(mark, None)
            return True
        whole = await self._read_transcript(key)
        if whole is None:
            return False
        exported = await asyncio.to_thread(export, whole)
        size = len(exported.document) + sum(map(len, exported.files.values()))
        if size > self._max_bytes:
            self._record_failure(mark, f"it has {size / MB:,.0f} MB, more than export_max_mb = {self._max_bytes // MB}")
            return False
        is_known = await self._is_known_check(mark.namespace, mark.path, whole.session)
        outcome, stamp, digest = await asyncio.to_thread(self._write_locked, file, exported, is_known)
        self._saved[mark] = (whole.session, stamp)
        return self._record_outcome(mark, digest, outcome)

    def _write_locked(
        self, file: SidecarFile, exported: Exported, is_known: Callable[[bytes], bool]
    ) -> tuple[Outcome, FileStamp | None, str]:
        """Write the sidecar if ``is_known`` accepts its present content, under a lock that all servers of this user
        share. Return the outcome, the stamp of the sidecar, and the SHA-256 of the document. After a conflict the stamp
        is None, because the document was then written to another file."""
        digest = hashlib.sha256(exported.document).hexdigest()
        with _lock(self._data_dir):
            outcome = file.write(exported.document, exported.files, is_known)
            return outcome, None if outcome == "conflict" else file.stamp, digest

    def _record_outcome(self, mark: SidecarMark, digest: str, outcome: Outcome) -> bool:
        self._problems.pop(mark, None)
        file = self._file(mark.path)
        if outcome == "conflict":
            if mark not in self._conflicts:
                log.warning(
                    "%s contains a conversation that is not in this store, so %s was written",
                    file.main,
                    file.conflict.name,
                )
            self._conflicts.add(mark)
            return False
        self._conflicts.discard(mark)
        self._written[mark.path] = digest
        return True

    def _record_failure(self, mark: SidecarMark, reason: str) -> None:
        """Record the failure and log it, but not again while the reason stays the same."""
        problem = NOT_SAVED.format(name=PurePosixPath(mark.path).name, reason=reason)
        if self._problems.get(mark) != problem:
            log.warning("%s: %s", self._file(mark.path).main, problem)
        self._problems[mark] = problem

    async def _read_transcript(self, key: SessionKey) -> Transcript | None:
        """Return the transcript of a session. Return None for an empty session, and while a turn runs: calls of that
        turn may have no result yet, and the end of the turn schedules another write."""
        whole = await read_snapshot(self._store, key)
        if whole is None or not whole.items or any(turn.state == "open" for turn in whole.turns):
            return None
        return whole

    def _file(self, path: str) -> SidecarFile:
        """Return the sidecar file of a notebook.

        Below the data directory, each contents root has a directory named by its hash. It holds the sidecars in
        ``data_dir`` mode, and otherwise their backups, so that no backup is listed beside the notebook.
        """
        name = f"{path.removesuffix(SUFFIX)}.agent.json"
        if self._export == "on":
            return SidecarFile(self._root / name, backup=self._backups / name)
        return SidecarFile(self._transcripts / name, make_parents=True)

    def _move_directory(self, old: str, new: str) -> None:
        """Move the files in the data directory that belong to notebooks in a renamed directory."""
        for tree in (self._backups, self._transcripts):
            source, target = tree / old, tree / new
            if source.is_dir() and not target.exists():
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                source.rename(target)

    async def _is_known_check(self, namespace: str, path: str, ours: Session | None) -> Callable[[bytes], bool]:
        """Return a function that checks whether a sidecar holds only content that the store has: this server wrote it,
        it was imported, or it names a session of the store in the same or an earlier revision. The function raises
        NewerRevision if the sidecar has a later revision of ``ours`` which the store has too."""
        accepted = {self._written.get(path), origin_of(ours) if ours else None}
        seen, present = await asyncio.to_thread(_read_unless, self._file(path).main, accepted)
        session = await self._store.info(SessionKey(namespace, present.session.key.id)) if present else None

        def is_known(body: bytes) -> bool:
            digest = hashlib.sha256(body).hexdigest()
            if digest in accepted:
                return True
            transcript = present if digest == seen else _parse(body)
            if transcript is None or session is None or transcript.session.key.id != session.key.id:
                return False
            if ours and ours.key == session.key and ours.revision < transcript.session.revision <= session.revision:
                raise NewerRevision
            return transcript.session.revision <= session.revision

        return is_known

    async def _change(self, change: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(change)
        except OSError as error:
            log.warning("the conversation beside a notebook could not be moved or deleted with the notebook: %s", error)


@contextlib.contextmanager
def _lock(data_dir: Path) -> Iterator[None]:
    """Lock the sidecars of a data directory. Without the directory there is no store on disk, so there is no second
    server that could write. Raises Timeout."""
    if not data_dir.is_dir():
        yield
        return
    with FileLock(data_dir / "sidecars.lock", timeout=LOCK_S):
        yield


def origin_of(session: Session) -> str | None:
    """Return the hash of the document that the session was imported from."""
    return (session.imported or {}).get("sha256")


def _parse(body: bytes) -> Transcript | None:
    try:
        return parse(body, max_values=MAX_VALUES)
    except InvalidRequest:
        return None


def _read_unless(path: Path, accepted: Collection[str | None]) -> tuple[str, Transcript | None]:
    """Return (SHA-256 of the file, transcript). The transcript is None if the hash is in ``accepted``, so that a file
    which this server wrote is not parsed at each write, and if the file is not a document of agent-kernel."""
    try:
        body = path.read_bytes() if path.is_file() else b""
    except OSError:
        body = b""
    digest = hashlib.sha256(body).hexdigest()
    return digest, None if digest in accepted or not body else _parse(body)
