"""Copies sessions from one store into another, and checks each copy by reading it back."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from agent_kernel.core.errors import Conflict, SessionBusy, StoreError
from agent_kernel.core.files import INLINE_BYTES
from agent_kernel.core.seams.session_store import FileStore, PersistentStore, SessionStore
from agent_kernel.core.session import NotebookBinding, SessionKey
from agent_kernel.core.session_tree import SessionSnapshot, Transcript

CopyState: TypeAlias = Literal["copied", "continued", "equal", "differs", "busy", "gone"]
"""Result of copying one session. ``copied``: the target did not have the session, or ``replace`` was set.
``continued``: the target had an earlier state of it, which was replaced. ``equal``: the target had the same session.
``differs``: the target has content that the source lacks, and nothing was written. ``busy``: a turn of it runs, or it
changes too often. ``gone``: it was deleted during the copy."""
DONE: frozenset[CopyState] = frozenset({"copied", "continued", "equal", "gone"})
_ATTEMPTS = 20
DOCUMENT_BYTES = 32 * 2**20
"""Maximum total bytes of a session's files that are included in a document. In base64 they stay below the maximum size
of a document."""


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """The result of copying one session. ``items`` is the number of its items in the source."""

    key: SessionKey
    state: CopyState
    items: int = 0


async def copyable_sessions(source: PersistentStore, namespace: str | None = None) -> tuple[list[SessionKey], int]:
    """Return (sessions without a running turn, longest unused first; number of sessions with a running turn) of
    ``namespace``, or of all namespaces (None)."""
    idle = [session.key for session in await source.idle(float("inf"))]
    keys = [key for key in idle if namespace in (None, key.namespace)]
    return keys, (await source.stats(namespace))["sessions"] - len(keys)


async def copy_stored_session(
    source: SessionStore, target: SessionStore, key: SessionKey, *, replace: bool = False
) -> SessionCopy:
    """Copy one session with all branches, media and files, as ``write_copy`` does."""
    try:
        original = await _read_with_files(source, key)
    except Conflict:
        return SessionCopy(key, "busy")
    return SessionCopy(key, "gone") if original is None else await write_copy(original, target, replace=replace)


async def write_copy(original: Transcript, target: SessionStore, *, replace: bool = False) -> SessionCopy:
    """Write a session with all branches, media and files, and read the copy back.

    The whole session is held in memory and written in one transaction. With ``replace``, a session of the target is
    overwritten even if it has content that the source lacks. Raises StoreError if the copy that was read back differs
    from the original.
    """
    key = original.session.key
    try:
        existing = await read_snapshot(target, key)
        if existing is not None and _content(existing) == _content(original):
            return SessionCopy(key, "equal", len(original.items))
        continues = existing is not None and _is_earlier(existing, original)
        if existing is not None and not (continues or replace):
            return SessionCopy(key, "differs", len(original.items))
        await target.restore(original, original.blobs, **({"replace": True} if existing is not None else {}))
    except (Conflict, SessionBusy):
        return SessionCopy(key, "busy")
    await _verify(target, original)
    return SessionCopy(key, "continued" if continues else "copied", len(original.items))


async def copy_bindings(
    source: PersistentStore, target: PersistentStore, keys: Sequence[SessionKey]
) -> list[NotebookBinding]:
    """Copy the bindings of notebooks to these sessions. Returns the bindings that were not copied, because the target
    binds the same notebook to another session."""
    copied = set(keys)
    left_out = []
    for binding in await source.bindings():
        if SessionKey(binding.namespace, binding.session) not in copied:
            continue
        place = (binding.namespace, binding.root, binding.path)
        bound_session = await target.bound(*place)
        if bound_session is None:
            await target.bind(*place, binding.session)
        elif bound_session != binding.session:
            left_out.append(binding)
    return left_out


async def _read_with_files(store: SessionStore, key: SessionKey) -> Transcript | None:
    """Return the session with the bytes of all files, also of those that are too large for a document. Raises Conflict
    if the session changes too often."""
    snapshot = await read_snapshot(store, key)
    if snapshot is None:
        return None
    blobs = dict(snapshot.blobs)
    for file in snapshot.files:
        if file.hash and not file.error and file.hash not in blobs:
            body = await cast(FileStore, store).file_body(key, file.id)
            if body is None:
                raise Conflict(f"The file {file.id} was removed while its session was copied. Copy the session again.")
            blobs[file.hash] = await asyncio.to_thread(body.read_bytes) if isinstance(body, Path) else body
    return dataclasses.replace(snapshot, blobs=blobs)


def _content(snapshot: Transcript) -> tuple[object, ...]:
    """Return everything of a session that must be equal in a copy: all but the revision, which increases with every
    write."""
    session = dataclasses.replace(snapshot.session, revision=0)
    return (
        *(session, snapshot.turns, snapshot.items, snapshot.branches),
        *(snapshot.summaries, snapshot.tree, snapshot.files),
    )


def _is_earlier(there: Transcript, original: Transcript) -> bool:
    """Return whether the session ``there`` in the target is an earlier state of ``original``: it has no turn, item,
    branch or file that ``original`` lacks, and was not changed later."""
    return (
        there.session.created == original.session.created
        and there.session.updated <= original.session.updated
        and {turn.id for turn in there.turns} <= {turn.id for turn in original.turns}
        and {(item.seq, item.turn) for item in there.items} <= {(item.seq, item.turn) for item in original.items}
        and {branch.name for branch in there.branches} <= {branch.name for branch in original.branches}
        and {file.id for file in there.files} <= {file.id for file in original.files}
    )


async def _verify(target: SessionStore, original: Transcript) -> None:
    """Read the copy back from the target. Raises StoreError if it differs from ``original``, or if bytes are missing or
    do not match their hashes."""
    key = original.session.key
    try:
        copy = await _read_with_files(target, key)
    except Conflict:
        copy = None
    if copy is None or _content(copy) != _content(original):
        raise StoreError(f"The copy of the session {key.id!r} is not equal to the original, which is unchanged.")
    damaged = await asyncio.to_thread(_select_damaged, copy.blobs)
    if damaged or copy.blobs.keys() != original.blobs.keys():
        raise StoreError(f"Not all media of the session {key.id!r} were copied; the original is unchanged.")


def _select_damaged(blobs: Mapping[str, bytes]) -> list[str]:
    return [digest for digest, data in blobs.items() if hashlib.sha256(data).hexdigest() != digest]


# Reads a whole session with its media, as it was at one moment, for an export while turns run.


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
