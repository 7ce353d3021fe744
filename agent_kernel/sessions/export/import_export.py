"""Exports sessions as documents, and imports documents as sessions."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from agent_kernel.core.errors import Conflict, InvalidRequest, SessionNotFound
from agent_kernel.core.files import File
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import Session, SessionKey, new_id
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export import jsonl, transcript
from agent_kernel.sessions.export.formats import markdown, mistralrs, notebook, openai_chat
from agent_kernel.sessions.export.formats.json_reader import MAX_VALUES, check_size, loads
from agent_kernel.sessions.export.formats.message_reader import is_tagged
from agent_kernel.sessions.export.import_sanitizer import sanitize, with_new_turn_ids
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import Exported
from agent_kernel.sessions.export.transcript_reader import is_own, read_fields
from agent_kernel.sessions.redaction.redaction import Redactor

MAX_BYTES = 128 * 2**20
"""Maximum size in bytes of a document to import."""
SHOWN = 200
"""Number of characters of the first user message that a preview shows."""
_ATTEMPTS = 5
FORMATS = ("agent-kernel", "jsonl", "openai", "mistralrs", "markdown", "markdown-files", "notebook")
"""Export formats."""
OWN = ("agent-kernel", "jsonl")
"""The formats of agent-kernel, which contain a session completely."""
FILELESS = ("openai", "notebook", "markdown", "markdown-files")
"""Formats that contain no files of a session; those of Markdown name them."""
IMPORTED = ("agent-kernel", "jsonl", "openai", "mistralrs")
"""Formats that can be imported."""


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """Describes a document before its import: its content, and the parts that would not be imported.

    ``begins`` is the beginning of the first user message; ``left_out`` counts what is not imported, by kind;
    ``media_bytes`` does not include media in files beside the document; ``files`` counts the files of the session.
    """

    format: str
    id: str
    title: str
    branches: int
    turns: int
    messages: int
    media: int
    media_bytes: int
    begins: str
    left_out: Mapping[str, int]
    files: int = 0


@dataclass(frozen=True, slots=True)
class ImportResult:
    session: Session
    preview: ImportPreview


async def export_session(
    store: SessionStore, key: SessionKey, format: str = "agent-kernel", *, branch: str | None = None
) -> Exported:
    """Export the session in one of ``FORMATS``.

    ``agent-kernel`` and ``jsonl`` contain all branches and media. ``markdown`` contains all branches if ``branch`` is
    None. In all other cases the document contains one branch: ``branch``, or the current one. Raises SessionNotFound,
    InvalidRequest for an unknown format or branch.
    """
    if format not in FORMATS:
        raise InvalidRequest(f"There is no format {format[:80]!r}.", hint=f"Formats: {', '.join(FORMATS)}.")
    original = await _read_session(store, key)
    if branch is not None and branch not in {known.name for known in original.branches}:
        raise InvalidRequest(f"There is no branch {branch[:80]!r}.", details={"branch": branch})
    if branch is not None and format in OWN:
        raise InvalidRequest("This format always contains all branches: omit the branch, or choose another format.")
    return await asyncio.to_thread(write_document, original, format, branch)


async def import_session(
    store: SessionStore,
    namespace: str,
    document: bytes,
    *,
    id: str | None = None,
    format: str | None = None,
    files: Mapping[str, bytes] | None = None,
    trusted: bool = False,
    redactor: Redactor | None = None,
    replace: bool = False,
) -> ImportResult:
    """Create a session from a document, in one transaction.

    ``id`` is the id of the new session; None creates an id. Raises Conflict for an id in use, unless ``replace`` is
    set. ``format`` None means that the format is detected. ``files`` are media beside the document, by hash.

    Text, media and files are imported, with branches, title, tags and times. Approvals, permissions, tools, settings
    and paths are not imported, nor anything that a model would read without the user seeing it. With ``trusted``, for a
    document that the user exported, everything is imported. ``redactor`` removes secrets. With ``replace``, the
    existing session's metadata and context stay. Raises InvalidRequest; the message names the position in the document.
    """
    read, name = await asyncio.to_thread(_parse_as, document, format, files or {})
    trusted = trusted and name in OWN
    known = {"id": read.session.key.id, "revision": read.session.revision}
    origin = None if trusted else {**known, "sha256": hashlib.sha256(document).hexdigest()}
    read = await asyncio.to_thread(_redact, read, redactor)
    for _ in range(_ATTEMPTS):
        key = SessionKey(namespace, new_id("session") if id is None else id)
        clean = await asyncio.to_thread(sanitize, read, key, now=time.time(), trusted=trusted, origin=origin)
        if replace and not trusted and (existing := await store.info(key)):
            clean = dataclasses.replace(
                clean, session=dataclasses.replace(clean.session, metadata=existing.metadata, context=existing.context)
            )
        try:
            session = await store.restore(clean, clean.blobs, **({"replace": True} if replace else {}))
        except Conflict:
            if id is not None:
                raise
            continue
        return ImportResult(session, _preview(read, clean, name))
    raise Conflict("No unused session id was found.", hint="Try again, or name an id.")


async def copy_session(store: SessionStore, key: SessionKey, target: SessionKey, title: str = "") -> Session:
    """Copy a session with all branches; its turns get new ids. Raises SessionNotFound, and Conflict if ``target``
    exists."""
    original = await _read_session(store, key)
    copy = with_new_turn_ids(
        replace(original, session=replace(original.session, title=title or original.session.title))
    )
    large = [file for file in copy.files if file.hash and file.hash not in copy.blobs]
    copy = replace(copy, files=tuple(file for file in copy.files if file not in large))
    copy = await asyncio.to_thread(sanitize, copy, target, now=time.time(), trusted=True)
    session = await store.restore(copy, copy.blobs)
    return await _copy_large_files(store, key, session, large)


async def _read_session(store: SessionStore, key: SessionKey) -> Transcript:
    snapshot = await read_snapshot(store, key)
    if snapshot is None:
        raise SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})
    return snapshot


async def _copy_large_files(store: SessionStore, key: SessionKey, copy: Session, large: Sequence[File]) -> Session:
    """Copy the files ``large``, which are too large for a document, from the session ``key`` to ``copy``, and return
    the copied session."""
    keeps = cast(FileStore, store)
    for file in large:
        body = await keeps.file_body(key, file.id)
        if body is not None:
            await keeps.add_files(copy.key, [(file, body)])
    return (await store.info(copy.key) or copy) if large else copy


async def preview(
    document: bytes, *, format: str | None = None, files: Mapping[str, bytes] | None = None, trusted: bool = False
) -> ImportPreview:
    """Describe what ``import_session`` would import from this document, without writing. Raises the same InvalidRequest
    errors as ``import_session``."""
    read, name = await asyncio.to_thread(_parse_as, document, format, files or {})
    key = SessionKey("preview", "preview")
    clean = await asyncio.to_thread(sanitize, read, key, now=time.time(), trusted=trusted and name in OWN)
    return _preview(read, clean, name)


def _redact(read: Transcript, redactor: Redactor | None) -> Transcript:
    if redactor is None or not redactor.is_on:
        return read
    items = tuple(replace(item, message=redactor.message(item.message)) for item in read.items)
    summaries = tuple(replace(summary, text=redactor.text(summary.text)) for summary in read.summaries)
    session = replace(read.session, title=redactor.text(read.session.title))
    return replace(read, items=items, summaries=summaries, session=session)


def _parse_as(document: bytes, format: str | None, files: Mapping[str, bytes]) -> tuple[Transcript, str]:
    if format is not None and format not in IMPORTED:
        raise InvalidRequest(f"The format {format[:80]!r} cannot be imported.", hint=f"Formats: {', '.join(IMPORTED)}.")
    read, name = _detect_and_parse(document)
    if format not in (None, name):
        raise InvalidRequest(f"The document has the format {name}, not {format}.")
    return read.with_files(files), name


def _detect_and_parse(document: bytes) -> tuple[Transcript, str]:
    if document.startswith(jsonl.START):
        check_size(document, MAX_BYTES, MAX_VALUES)
        return jsonl.read(io.BytesIO(document), "import"), "jsonl"
    fields = loads(document, MAX_BYTES, transcript.MAX_DEPTH)
    if isinstance(fields.value, list):
        return openai_chat.read(fields, "import"), "openai"
    if isinstance(fields.value, dict) and is_own(fields):
        return read_fields(fields, "import"), "agent-kernel"
    if not isinstance(fields.value, dict) or "messages" not in fields.value:
        fields.refuse("this is not a session: it has neither agent_kernel nor messages")
    messages = fields.value["messages"]
    first = messages[0] if isinstance(messages, list) and messages else None
    # Documents of OpenAI never have the lists of mistral.rs.
    if {"images", "videos", "files"} & fields.value.keys() or is_tagged(first):
        return mistralrs.read(fields, "import"), "mistralrs"
    return openai_chat.read(fields, "import"), "openai"


def _preview(read: Transcript, clean: Transcript, format: str) -> ImportPreview:
    first = next((item.message.text for item in clean.items if item.message.role == "user" and item.message.text), "")
    digests = {medium.hash for item in clean.items for medium in item.message.media}
    return ImportPreview(
        format,
        read.session.key.id,
        clean.session.title,
        max(1, len(clean.branches)),
        len(clean.turns),
        len(clean.items),
        len(digests),
        sum(len(data) for digest, data in clean.blobs.items() if digest in digests),
        " ".join(first.split())[:SHOWN],
        dict(clean.left_out),
        len(clean.files),
    )


def write_document(found: Transcript, format: str, branch: str | None = None) -> Exported:
    """Write the session ``found`` in one of ``FORMATS``. ``branch`` has the meaning that ``export_session``
    describes."""
    left_out = {"files": len(found.files)} if found.files and format in FILELESS else {}
    match format:
        case "agent-kernel":
            return transcript.export(found, inline_bytes=None)
        case "jsonl":
            return Exported(b"".join(jsonl.write(found)), media_type="application/jsonl", suffix=".jsonl")
        case "openai":
            return Exported(openai_chat.write(found, branch, left_out), left_out=left_out)
        case "mistralrs":
            return Exported(mistralrs.write(found, branch, left_out), left_out=left_out)
        case "notebook":
            document = notebook.write(found, branch, left_out)
            return Exported(document, {}, "application/x-ipynb+json", ".ipynb", left_out)
        case _:
            text, files = markdown.write(found, branch, beside=format == "markdown-files")
            return Exported(text.encode(), files, "text/markdown", ".md", left_out)
