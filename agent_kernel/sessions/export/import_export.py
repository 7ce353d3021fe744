"""Sessions that leave a store as documents, and documents that come in as sessions."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from agent_kernel.core.errors import Conflict, InvalidRequest, SessionNotFound
from agent_kernel.core.files import File
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import Session, SessionKey, new_id
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export import jsonl, transcript
from agent_kernel.sessions.export.consistent_read import snapshot
from agent_kernel.sessions.export.formats import chat, markdown, mistralrs, notebook
from agent_kernel.sessions.export.formats.json_reader import MAX_VALUES, check_size, loads
from agent_kernel.sessions.export.formats.message_reader import is_tagged
from agent_kernel.sessions.export.import_sanitizer import admitted, renamed
from agent_kernel.sessions.export.transcript import Exported
from agent_kernel.sessions.export.transcript_reader import is_own, of_fields
from agent_kernel.sessions.redaction.redaction import Redactor

MAX_BYTES = 128 * 2**20
"""Of a document that comes in."""
SHOWN = 200
"""Characters of the first message, in a preview."""
_ATTEMPTS = 5
Writer: TypeAlias = Callable[[Transcript, str | None, dict[str, int]], Exported]


@dataclass(frozen=True, slots=True)
class Preview:
    """What a document holds, and what of it would come in. ``begins`` is how the first message of a person begins;
    ``left_out`` counts what stays out, by a word for it; ``media_bytes`` is without files beside the document.
    ``files`` counts those of the session."""

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
class Imported:
    session: Session
    preview: Preview


async def export_session(
    store: SessionStore, key: SessionKey, format: str = "agent-kernel", *, branch: str | None = None
) -> Exported:
    """The session in one of ``FORMATS``. ``agent-kernel`` and ``jsonl`` hold all branches and every medium;
    ``markdown`` names all branches; the others, and markdown with a ``branch``, hold one (None: the current one).
    Raises SessionNotFound, InvalidRequest for an unknown format or branch."""
    writer = FORMATS.get(format)
    if writer is None:
        raise InvalidRequest(f"There is no format {format[:80]!r}.", hint=f"Formats: {', '.join(FORMATS)}.")
    found = await snapshot(store, key)
    if found is None:
        raise SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})
    if branch is not None and branch not in {known.name for known in found.branches}:
        raise InvalidRequest(f"There is no branch {branch[:80]!r}.", details={"branch": branch})
    return await asyncio.to_thread(writer, found, branch, {})


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
) -> Imported:
    """A new session of what the document says, in one transaction: all of it or nothing. ``id`` None makes one; one
    that is in use is a Conflict, nothing is written over, unless it is to be ``replace``d. ``format`` None finds out.
    ``files`` are media beside the document by their hash.

    Text, media and files come in, with branches, title, tags and times; no approval, permission, tool, setting or path,
    and nothing that a model would read unseen. ``trusted`` takes a document of one's own as it is. ``redactor`` cleans
    what comes in. A session that is replaced keeps its own metadata and context. Raises InvalidRequest that names the
    place.
    """
    read, name = await asyncio.to_thread(_read, document, format, files or {})
    trusted = trusted and name in OWN
    origin = None if trusted else _origin(read, document)
    read = await asyncio.to_thread(_cleaned, read, redactor)
    for _ in range(_ATTEMPTS):
        key = SessionKey(namespace, new_id("session") if id is None else id)
        come = await asyncio.to_thread(admitted, read, key, now=time.time(), trusted=trusted, origin=origin)
        if replace and not trusted and (there := await store.info(key)):
            come = dataclasses.replace(
                come, session=dataclasses.replace(come.session, metadata=there.metadata, context=there.context)
            )
        try:
            session = await store.restore(come, come.blobs, **({"replace": True} if replace else {}))
        except Conflict:
            if id is not None:
                raise
            continue
        return Imported(session, _preview(read, come, name))
    raise Conflict("No id for the session was free.")


async def copy_session(store: SessionStore, key: SessionKey, target: SessionKey, title: str = "") -> Session:
    """All of a session, all branches, as another one; its turns get ids of their own. Raises SessionNotFound, Conflict
    if ``target`` exists."""
    found = await snapshot(store, key)
    if found is None:
        raise SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})
    copy = renamed(replace(found, session=replace(found.session, title=title or found.session.title)))
    large = [file for file in copy.files if file.hash and file.hash not in copy.blobs]
    copy = replace(copy, files=tuple(file for file in copy.files if file not in large))
    copy = await asyncio.to_thread(admitted, copy, target, now=time.time(), trusted=True)
    session = await store.restore(copy, copy.blobs)
    return await _with_large(store, key, session, large)


async def _with_large(store: SessionStore, key: SessionKey, copy: Session, large: Sequence[File]) -> Session:
    """Files that are too large for a document go from one session to the other by themselves."""
    keeps = cast(FileStore, store)
    for file in large:
        body = await keeps.file_body(key, file.id)
        if body is not None:
            await keeps.add_files(copy.key, [(file, body)])
    return (await store.info(copy.key) or copy) if large else copy


async def preview(
    document: bytes, *, format: str | None = None, files: Mapping[str, bytes] | None = None, trusted: bool = False
) -> Preview:
    """What ``import_session`` would do; nothing is written. Raises InvalidRequest as it does."""
    read, name = await asyncio.to_thread(_read, document, format, files or {})
    key = SessionKey("preview", "preview")
    come = await asyncio.to_thread(admitted, read, key, now=time.time(), trusted=trusted and name in OWN)
    return _preview(read, come, name)


def _cleaned(read: Transcript, redactor: Redactor | None) -> Transcript:
    if redactor is None or not redactor.is_on:
        return read
    items = tuple(replace(item, message=redactor.message(item.message)) for item in read.items)
    summaries = tuple(replace(summary, text=redactor.text(summary.text)) for summary in read.summaries)
    session = replace(read.session, title=redactor.text(read.session.title))
    return replace(read, items=items, summaries=summaries, session=session)


def _read(document: bytes, format: str | None, files: Mapping[str, bytes]) -> tuple[Transcript, str]:
    if format is not None and format not in IMPORTED:
        raise InvalidRequest(f"There is no import from {format[:80]!r}.", hint=f"From these: {', '.join(IMPORTED)}.")
    read, name = _parsed(document)
    if format not in (None, name):
        raise InvalidRequest(f"The document is not {format} but {name}.")
    return read.with_files(files), name


def _parsed(document: bytes) -> tuple[Transcript, str]:
    if document.startswith(jsonl.START):
        check_size(document, MAX_BYTES, MAX_VALUES)
        return jsonl.read(io.BytesIO(document), "import"), "jsonl"
    fields = loads(document, MAX_BYTES, transcript.MAX_DEPTH)
    if isinstance(fields.value, dict) and is_own(fields):
        return of_fields(fields, "import"), "agent-kernel"
    if not isinstance(fields.value, dict | list) or (isinstance(fields.value, dict) and "messages" not in fields.value):
        fields.refuse("this is no session: it has neither agent_kernel nor messages")
    if isinstance(fields.value, dict) and (_has_lists(fields.value) or is_tagged(_first(fields.value["messages"]))):
        return mistralrs.read(fields, "import"), "mistralrs"
    return chat.read(fields, "import"), "openai"


def _has_lists(document: Mapping[str, object]) -> bool:
    """Of mistral.rs; no document of OpenAI has them."""
    return bool({"images", "videos", "files"} & document.keys())


def _first(messages: object) -> object:
    return messages[0] if isinstance(messages, list) and messages else None


def _origin(read: Transcript, document: bytes) -> dict[str, object]:
    return {
        "id": read.session.key.id,
        "revision": read.session.revision,
        "sha256": hashlib.sha256(document).hexdigest(),
    }


def _preview(read: Transcript, come: Transcript, format: str) -> Preview:
    first = next((item.message.text for item in come.items if item.message.role == "user" and item.message.text), "")
    named = {medium.hash for item in come.items for medium in item.message.media}
    return Preview(
        format,
        read.session.key.id,
        come.session.title,
        max(1, len(come.branches)),
        len(come.turns),
        len(come.items),
        len(named),
        sum(len(data) for digest, data in come.blobs.items() if digest in named),
        " ".join(first.split())[:SHOWN],
        dict(come.left_out),
        len(come.files),
    )


def _own(found: Transcript, branch: str | None, left_out: dict[str, int]) -> Exported:
    if branch is not None:
        raise InvalidRequest("This format holds all branches.")
    return transcript.export(found, inline_bytes=None)


def _chat(found: Transcript, branch: str | None, left_out: dict[str, int]) -> Exported:
    document = chat.write(found, branch, left_out)
    return replace(Exported(document), left_out=_without_files(found, left_out))


def _tagged(found: Transcript, branch: str | None, left_out: dict[str, int]) -> Exported:
    return replace(Exported(mistralrs.write(found, branch, left_out)), left_out=left_out)


def _lines(found: Transcript, branch: str | None, left_out: dict[str, int]) -> Exported:
    if branch is not None:
        raise InvalidRequest("This format holds all branches.")
    return Exported(b"".join(jsonl.write(found)), media_type="application/jsonl", suffix=".jsonl")


def _markdown(found: Transcript, branch: str | None, left_out: dict[str, int]) -> Exported:
    return _page(*markdown.write(found, branch, beside=False))


def _markdown_and_files(found: Transcript, branch: str | None, left_out: dict[str, int]) -> Exported:
    return _page(*markdown.write(found, branch, beside=True))


def _page(text: str, files: Mapping[str, bytes]) -> Exported:
    return Exported(text.encode(), files, "text/markdown", ".md")


def _notebook(found: Transcript, branch: str | None, left_out: dict[str, int]) -> Exported:
    document = notebook.write(found, branch, left_out)
    return Exported(document, {}, "application/x-ipynb+json", ".ipynb", _without_files(found, left_out))


def _without_files(found: Transcript, left_out: dict[str, int]) -> dict[str, int]:
    return left_out | ({"files": len(found.files)} if found.files else {})


FORMATS: Mapping[str, Writer] = {
    "agent-kernel": _own,
    "jsonl": _lines,
    "openai": _chat,
    "mistralrs": _tagged,
    "markdown": _markdown,
    "markdown-files": _markdown_and_files,
    "notebook": _notebook,
}
"""Formats that go out, by their names."""
OWN = ("agent-kernel", "jsonl")
"""Those that hold a session as it was."""
IMPORTED = ("agent-kernel", "jsonl", "openai", "mistralrs")
"""Those that come in."""
