"""Reads a whole session with its media, as it was at one moment, for an export while turns run."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import cast

from agent_kernel.core.errors import Conflict
from agent_kernel.core.files import INLINE_BYTES
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.core.session_tree import SessionSnapshot, Transcript

_ATTEMPTS = 20
DOCUMENT_BYTES = 32 * 2**20
"""Maximum total bytes of a session's files that are included in a document. In base64 they stay below the maximum size
of a document."""


async def read_snapshot(store: SessionStore, key: SessionKey) -> Transcript | None:
    """Return the session with all branches and media at one revision, or None if it does not exist.

    The bytes of media are read afterwards, one by one. If some are missing and the revision has changed, the read
    starts again, since removing items removes their media. If the revision is unchanged, they are reported as missing.
    Raises Conflict if the session changes during twenty reads in a row.
    """
    for _ in range(_ATTEMPTS):
        whole = await store.whole(key)
        if whole is None:
            return None
        # This runs in a thread, because a long session has tens of thousands of messages.
        media = await asyncio.to_thread(getattr, whole, "media")
        blobs = {digest: await store.blob(key, digest) for digest in media} | await _files(store, whole, media)
        if None not in blobs.values() or await store.info(key) == whole.session:
            known = {digest: data for digest, data in blobs.items() if data is not None}
            return to_transcript(whole, known)
    raise Conflict(
        "The session is changing too often to be read as a whole.",
        hint="Wait until its running turn has ended, and try again.",
        details={"session": key.id},
    )


async def _files(store: SessionStore, whole: SessionSnapshot, media: Collection[str]) -> dict[str, bytes | None]:
    """Return the bytes of files by hash, newest first, as long as they fit into a document. Of the other files only the
    metadata is exported."""
    room = DOCUMENT_BYTES
    bodies: dict[str, bytes | None] = {}
    for file in reversed(whole.files):
        if file.error or file.hash in media or file.hash in bodies or file.size > min(room, INLINE_BYTES):
            continue
        body = await cast(FileStore, store).file_body(whole.session.key, file.id)
        bodies[file.hash] = await asyncio.to_thread(body.read_bytes) if isinstance(body, Path) else body
        room -= file.size
    return bodies


def to_transcript(whole: SessionSnapshot, blobs: dict[str, bytes]) -> Transcript:
    """Return a transcript of the snapshot. Summaries lose their ids, which are valid in this store only."""
    summaries = tuple(dataclasses.replace(summary, id=0) for summary in whole.summaries)
    fields = {field.name: getattr(whole, field.name) for field in dataclasses.fields(SessionSnapshot)}
    return Transcript(**{**fields, "summaries": summaries}, blobs=blobs)
