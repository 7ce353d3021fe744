"""One consistent reading of a whole session with its media, for an export while turns go on."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import cast

from agent_kernel.core.errors import Conflict
from agent_kernel.core.files import INLINE_BYTES
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.core.session_tree import SessionSnapshot, Transcript

_ATTEMPTS = 20
DOCUMENT_BYTES = 32 * 2**20
"""Of all files of a session whose bytes go into a document; as base64 they leave room below the largest one."""


async def snapshot(store: SessionStore, key: SessionKey) -> Transcript | None:
    """The session with all its branches and media at one revision, or None if there is none.

    Media are read behind it, each by itself, so a missing one counts only if the revision stayed: what is removed takes
    its media along. Raises Conflict when it changed twenty times over.
    """
    for _ in range(_ATTEMPTS):
        whole = await store.whole(key)
        if whole is None:
            return None
        blobs = {digest: await store.blob(key, digest) for digest in whole.media} | await _files(store, whole)
        if None not in blobs.values() or await store.info(key) == whole.session:
            known = {digest: data for digest, data in blobs.items() if data is not None}
            return transcript(whole, known)
    raise Conflict("The session changes too fast to be copied.", details={"session": key.id})


async def _files(store: SessionStore, whole: SessionSnapshot) -> dict[str, bytes | None]:
    """The bytes of files that are small enough for a document, the newest first; of the others the facts must do."""
    room = DOCUMENT_BYTES
    found: dict[str, bytes | None] = {}
    for file in reversed(whole.files):
        if file.error or file.hash in whole.media or file.hash in found or file.size > min(room, INLINE_BYTES):
            continue
        body = await cast(FileStore, store).file_body(whole.session.key, file.id)
        found[file.hash] = await asyncio.to_thread(body.read_bytes) if isinstance(body, Path) else body
        room -= file.size
    return found


def transcript(whole: SessionSnapshot, blobs: dict[str, bytes]) -> Transcript:
    """Summaries without the ids that the store gave them, which another store would not give."""
    summaries = tuple(dataclasses.replace(summary, id=0) for summary in whole.summaries)
    fields = {field.name: getattr(whole, field.name) for field in dataclasses.fields(SessionSnapshot)}
    return Transcript(**{**fields, "summaries": summaries}, blobs=blobs)
