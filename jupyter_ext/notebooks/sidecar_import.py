"""Imports the sidecar that came with a notebook which was moved, copied, or received from another machine.

The session id in a sidecar is a hint, not a permission: the notebook is bound to that session only if the sidecar has
the same items of the session as the store."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Session, SessionKey, new_id
from agent_kernel.sessions.export.import_export import MAX_BYTES, copy_session
from agent_kernel.sessions.export.transcript import Transcript, parse
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.notebooks.bindings import Notebooks, is_notebook
from jupyter_ext.notebooks.sidecar_file import SidecarFile
from jupyter_ext.notebooks.sidecar_writer import Sidecars, origin_of

log = logging.getLogger(__name__)
SidecarKind: TypeAlias = Literal["nothing", "own", "moved", "copied", "ahead", "foreign", "unreadable"]
ARRIVING: tuple[SidecarKind, ...] = ("foreign", "ahead")
"""The kinds of sidecars that a person can import."""
REMEMBERED = 64
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{16,}={0,2}\s*")


@dataclass(frozen=True, slots=True)
class FoundSidecar:
    """The sidecar found beside a notebook. ``kind`` is one of:

    ``own``: it belongs to the notebook's session, or the session was imported from it. ``moved``: it belongs to a
    session of the store whose former notebook is gone. ``copied``: it belongs to a session of the store whose notebook
    still exists. ``ahead``: it belongs to a session of the store, but has turns that the store does not have.
    ``foreign``: its session is not in the store. ``unreadable``: this version cannot read it; ``backup`` is then the
    path of its previous version, or empty if there is none.
    """

    kind: SidecarKind
    transcript: Transcript | None = None
    sha256: str = ""
    backup: str = ""


class SidecarImport:
    def __init__(self, store: SessionStore, notebooks: Notebooks, sidecars: Sidecars) -> None:
        self._store = store
        self._notebooks = notebooks
        self._sidecars = sidecars
        self._seen: dict[str, tuple[tuple[int, int, int], Transcript | None, str]] = {}

    async def find_arriving_session(self, namespace: str, place: str) -> SessionKey | None:
        """Return the session for a notebook that has none: the session of its sidecar if the store knows that session,
        else None. Errors are logged and None is returned, so that the notebook starts a new session."""
        try:
            sidecar = await self.inspect(namespace, place)
            if sidecar.kind not in ("moved", "copied") or sidecar.transcript is None:
                return None
            key = SessionKey(namespace, sidecar.transcript.session.key.id)
            if sidecar.kind == "copied":
                key = await self._copy(key, place)
            else:
                await self._move_backup(key, place)
            await self._notebooks.bind(key, place)
        except AgentKernelError as error:
            log.warning("the conversation beside %s was not imported: %s", place, error)
            return None
        return key

    async def _move_backup(self, key: SessionKey, place: str) -> None:
        """Let the backup of a sidecar follow a notebook that a person has moved without Jupyter."""
        new = self._sidecars.file(place)
        for path in await self._notebooks.paths(key):
            old = self._sidecars.file(path)
            if old and new and path != place:
                try:
                    await asyncio.to_thread(old.move_backup, new)
                except OSError as error:
                    log.warning("the backup of the conversation beside %s was not moved: %s", place, error)

    async def on_copied(self, namespace: str, source: str, path: str) -> None:
        """Bind a copied notebook to a copy of its conversation."""
        key = await self._notebooks.bound_session(namespace, source) if is_notebook(path) else None
        if key is None or is_private(key.id) or await self._notebooks.bound_session(namespace, path):
            return
        try:
            await self._notebooks.bind(await self._copy(key, path), path)
        except AgentKernelError as error:
            log.warning("the conversation of %s was not copied: %s", source, error)

    async def read_document(self, place: str) -> tuple[bytes, dict[str, bytes]] | None:
        """Return the sidecar document beside a notebook and its media by hash, for an import; None if there is no
        sidecar. Media whose files are missing are taken from the outputs of the notebook if they are there. Raises
        InvalidRequest if the file is not a document of agent-kernel or is too large."""
        file = self._sidecars.file(place) if is_notebook(place) else None
        if file is None:
            return None
        try:
            body = await asyncio.to_thread(file.read, MAX_BYTES)
            if body is None:
                return None
            read = await asyncio.to_thread(parse, body)
            files = await asyncio.to_thread(file.files, read.absent, MAX_BYTES)
            missing = set(read.absent) - files.keys()
            if missing:
                files |= await asyncio.to_thread(_output_media, Path(self._notebooks.root) / place, missing)
            return body, files
        except OSError as error:
            raise InvalidRequest(f"{file.main.name} cannot be read: {error.strerror or error}.") from error

    async def inspect(self, namespace: str, place: str) -> FoundSidecar:
        file = self._sidecars.file(place) if is_notebook(place) else None
        if file is None:
            return FoundSidecar("nothing")
        transcript, digest = await asyncio.to_thread(self._read_cached, place, file)
        if not digest:
            return FoundSidecar("nothing")
        if transcript is None:
            return FoundSidecar("unreadable", sha256=digest, backup=file.find_backup())
        bound = await self._notebooks.bound_session(namespace, place)
        key = SessionKey(namespace, transcript.session.key.id)
        stored = await self._store.info(key)
        return FoundSidecar(await self._kind(bound, stored, transcript, digest, place), transcript, digest)

    async def _kind(
        self, bound: SessionKey | None, kept: Session | None, transcript: Transcript, digest: str, place: str
    ) -> SidecarKind:
        bound_session = await self._store.info(bound) if bound else None
        if bound_session and origin_of(bound_session) == digest:
            return "own"
        if kept is not None and kept.key == bound and transcript.session.revision <= kept.revision:
            return "own"
        if kept is None or is_private(kept.key.id) or not await self._matches_store(kept.key, transcript):
            return "foreign"
        if transcript.session.revision > kept.revision:
            return "ahead"
        if bound:
            return "nothing"
        root = Path(self._notebooks.root)
        others = [path for path in await self._notebooks.paths(kept.key) if path != place]
        has_other_notebook = await asyncio.to_thread(lambda: any((root / path).is_file() for path in others))
        return "copied" if has_other_notebook else "moved"

    async def _matches_store(self, key: SessionKey, transcript: Transcript) -> bool:
        """Return whether the document has items and all of them equal those in the store. Whoever has such a document
        has already read the session."""
        whole = await self._store.whole(key)
        if whole is None or not transcript.items:
            return False
        stored_items = {item.seq: item for item in whole.items}
        common = [item for item in transcript.items if item.seq <= whole.session.head]
        return bool(common) and all(stored_items.get(item.seq) == item for item in common)

    async def _copy(self, key: SessionKey, path: str) -> SessionKey:
        target = SessionKey(key.namespace, new_id("session"))
        await copy_session(self._store, key, target, title=self._notebooks.new_title(path))
        return target

    def _read_cached(self, place: str, file: SidecarFile) -> tuple[Transcript | None, str]:
        """Return the transcript and the hash of the sidecar; the hash is empty if there is no file. The file is read
        again only after it has changed."""
        stamp = file.stamp
        if stamp is None:
            return None, ""
        cached = self._seen.get(place)
        if cached is None or cached[0] != stamp:
            cached = (stamp, *self._sidecars.parse_file(file.main))
            self._seen[place] = cached
            while len(self._seen) > REMEMBERED:
                self._seen.pop(next(iter(self._seen)))
        return cached[1], cached[2]


def _output_media(notebook: Path, hashes: Collection[str]) -> dict[str, bytes]:
    """Return the media with these ``hashes`` that are outputs of the notebook, by hash. Empty for a notebook that is
    too large or malformed."""
    try:
        if notebook.stat().st_size > MAX_BYTES:
            return {}
        cells = json.loads(notebook.read_bytes())["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", ()) if "data" in output]
        texts = [text for output in outputs for text in output["data"].values() if isinstance(text, str)]
        bodies = (base64.b64decode(text) for text in texts if _BASE64.fullmatch(text))
        media = {hashlib.sha256(body).hexdigest(): body for body in bodies}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.info("the outputs of %s were not searched for media: %s", notebook, error)
        return {}
    return {digest: body for digest, body in media.items() if digest in hashes}


def sidecar_note(sidecar: FoundSidecar, name: str) -> str:
    """Return one line that tells the user about the file that holds the notebook's session (sidecar); empty if the user
    need not do anything."""
    session = sidecar.transcript.session if sidecar.transcript else None
    about = f"{session.title or session.key.id!r}, {session.turns} turns" if session else ""
    match sidecar.kind:
        case "foreign":
            return (
                f"{name} contains a conversation that is not in this store ({about}). Import the file to continue it."
            )
        case "ahead":
            return f"{name} contains turns that this store does not have ({about}). Import the file to continue it."
        case "unreadable":
            restore = f" To restore its previous version, copy {sidecar.backup} over it." if sidecar.backup else ""
            return f"This version cannot read a conversation from {name}. The file is not changed.{restore}"
        case "moved":
            return f"The next cell continues the conversation that came with the notebook ({about})."
        case "copied":
            return f"The next cell continues a copy of the conversation that came with the notebook ({about})."
        case _:
            return ""
