"""Routes that upload, list, read and delete files: those of one session, or all that the caller may use."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tornado import web
from tornado.iostream import StreamClosedError

from agent_kernel.core.errors import AgentKernelError, FileNotFound, FileTooLarge, InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.session import SessionKey, check_id
from agent_kernel.sessions.file_registry import UPLOADS, FileRegistry
from jupyter_ext.api.dialects.handler import SharedHandler
from jupyter_ext.api.http import file_response
from jupyter_ext.api.http.body_buffer import DROPPED
from jupyter_ext.api.http.handler import guard
from jupyter_ext.api.http.upload import GATHERED, OVERHEAD, Upload
from jupyter_ext.api.native.file_json import anthropic_file, anthropic_page, container_file, openai_file, page
from jupyter_ext.api.schemas import files as shapes
from jupyter_ext.api.schemas.operation import ANY_BYTES, ID_PATTERN, SESSION, Parameter, SessionId, limit, operation

LISTED = 1_000
CHUNK = 1 << 18
PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision", "agent_output")
"""Purposes that an upload may have: those of OpenAI's clients, and that of agent-kernel's client for files that a
function made. The purpose has no effect."""
LASTS_S = (3_600, 2_592_000)
"""The minimum and maximum of ``expires_after`` in seconds, as in OpenAI's API."""
ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"
FILE_ID = re.compile(r"file-[0-9a-f]{32}|file_[0-9a-f]{12}_r[0-9]+_[0-9]+")
"""The ids of uploaded files and of files that tools made."""
TEXT = {"type": "string", "enum": [*PURPOSES]}
AFTER = {
    ANCHOR: {"type": "string", "enum": ["created_at"]},
    SECONDS: {"type": "string", "pattern": r"^[0-9]{4,7}$", "description": f"{LASTS_S[0]} to {LASTS_S[1]}"},
}
OWNER = {"type": "string", "maxLength": 512, "pattern": f"^$|{ID_PATTERN}"}
UPLOAD = shapes.form(("file", "purpose"), file=shapes.BYTES, purpose=TEXT, session=OWNER, **AFTER)
INTO = Parameter(
    "session", "The session of the file, which is created if needed; the form field session has precedence.", SessionId
)
HOUSE = Parameter("anthropic-version", "If it is sent, the response has Anthropic's format.", place="header")
PAGES = (limit(LISTED, LISTED), Parameter("after", "The id of the file after which the page begins."))
LISTING = (
    *PAGES,
    SESSION,
    HOUSE,
    Parameter("purpose", "List only files with this purpose."),
    Parameter("order", "asc: list the oldest files first. With session, they are always listed in this order."),
)
BEHIND = "after, if it is sent, must be the id of a file."
WITHIN = "The range, if one is requested, must lie within the file."
BODY = ANY_BYTES
PARTS = {206: BODY, 304: None}
CONDITIONS = (
    Parameter("Range", "One range of bytes.", place="header"),
    Parameter("If-Range", "The ETag that the file must still have for the range to apply.", place="header"),
    Parameter("If-None-Match", "The ETag of the client's copy; 304 if the file still has it.", place="header"),
)


def lasting(fields: Mapping[str, str]) -> int | None:
    """Return the seconds that ``expires_after`` names, or None if it is absent. Raises InvalidRequest."""
    if not any(name.startswith("expires_after") for name in fields):
        return None
    seconds = fields.get(SECONDS, "")
    if fields.get(ANCHOR) != "created_at" or not re.fullmatch(r"[0-9]{1,9}", seconds):
        raise InvalidRequest(
            f"{ANCHOR} must be created_at, and {SECONDS} a number.", details={"param": "expires_after"}
        )
    if not LASTS_S[0] <= int(seconds) <= LASTS_S[1]:
        raise InvalidRequest(
            f"{SECONDS} must be from {LASTS_S[0]} to {LASTS_S[1]}.", details={"param": "expires_after"}
        )
    return int(seconds)


class FileAgentHandler(SharedHandler):
    """Base class of the handlers of the file routes. It gives access to the file registry, and finds the session
    through which the caller may use a file. Anthropic's clients get files in their own format."""

    def facts(self, file: File, session: str) -> dict[str, Any]:
        return anthropic_file(file) if self.anthropic else openai_file(file, session)

    def page_of(self, files: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
        """Return a page of at most ``limit`` of ``files``. It begins after the file that ``after`` (or ``page``) of the
        query names.

        If that file was deleted in the meantime, the page begins with the first file, so that a client that deletes
        everything it lists reaches the end. Raises InvalidRequest for text that is not a file id.
        """
        after = self.get_argument("after", "") or self.get_argument("after_id", "") or self.get_argument("page", "")
        ids = [file["id"] for file in files]
        if after and after not in ids and not FILE_ID.fullmatch(after):
            raise InvalidRequest(f"after: {after[:80]!r} is not the id of a file.")
        start = ids.index(after) + 1 if after in ids else 0
        listed, more = files[start : start + limit], len(files) > start + limit
        return anthropic_page(listed, has_more=more) if self.anthropic else page(listed, has_more=more)

    @property
    def registry(self) -> FileRegistry:
        files = self.services.runtime.files
        if files is None:
            raise InvalidRequest("The session store of this server cannot store files.")
        return files

    def compute_etag(self) -> str | None:
        """Return None: the ETag of a file is its hash, and tornado's own would need the whole body."""
        return None

    async def owner(self, id: str, session: str | None = None) -> SessionKey:
        """Return the key of the session through which the caller may use the file: ``session`` if given, else the first
        session of the caller that has the file. Raises FileNotFound."""
        namespace = self.caller.namespace
        keys = [SessionKey(namespace, session)] if session else await self.registry.sessions_of(namespace, id)
        for key in keys:
            if await self.services.access.may_use(self.caller, key.id):
                await self.registry.file(key, id)
                return key
        raise FileNotFound(f"There is no file {id[:80]!r}.", details={"file": id[:200]})

    async def send(self, key: SessionKey, id: str) -> None:
        file, body = await self.registry.open(key, id)
        for name, value in file_response.headers(file).items():
            self.set_header(name, value)
        if f'"{file.hash}"' in self.request.headers.get("If-None-Match", ""):
            self.set_status(304)
            self.finish(set_content_type=file.mime)
            return
        fresh = self.request.headers.get("If-Range", f'"{file.hash}"') == f'"{file.hash}"'
        part = file_response.span(self.request.headers.get("Range") if fresh else None, file.size)
        if part is None:
            self.set_header("Content-Range", f"bytes */{file.size}")
            self.clear_header("Content-Disposition")
            self.refuse(
                InvalidRequest(f"The requested range is not within the file, which has {file.size} bytes."), 416
            )
            return
        if part.length < file.size:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {part.start}-{part.end - 1}/{file.size}")
        self.set_header("Content-Length", str(part.length))
        await self._write(body, part, self._headers["Content-Type"])

    async def _write(self, body: bytes | Path, part: file_response.ByteRange, mime: str) -> None:
        source: BinaryIO = io.BytesIO(body) if isinstance(body, bytes) else await asyncio.to_thread(body.open, "rb")
        with contextlib.closing(source), contextlib.suppress(StreamClosedError):
            source.seek(part.start)
            bytes_left = part.length
            while bytes_left > 0 and (chunk := await asyncio.to_thread(source.read, min(CHUNK, bytes_left))):
                bytes_left -= len(chunk)
                self.write(chunk)
                await self.flush()
            self.finish(set_content_type=mime)


@web.stream_request_body
class FilesHandler(FileAgentHandler):
    """Lists and uploads files. An upload is written as it arrives, after its sender was authorized."""

    _upload: Upload | None = None
    _gathered = b""
    _arrived_bytes = 0
    _feeding = False
    _left = False

    @property
    def max_accepted(self) -> int:
        files = self.services.runtime.files
        return super().max_accepted if files is None else max(super().max_accepted, files.upload_bytes + OVERHEAD)

    async def prepare(self) -> None:  # type: ignore[override]  # as in AgentHandler
        await super().prepare()
        if self.request.method != "POST" or self._finished or self.refusal is not None:
            return
        try:
            await self.admit("write", kernels=True)
            needs = ("file",) if self.anthropic else ("file", "purpose")
            self._upload = Upload(self.request.headers.get("Content-Type", ""), self.registry.incoming, needs)
            if self.announced_bytes > self.registry.upload_bytes + OVERHEAD:
                limit = f"A file can have at most {self.registry.upload_bytes / 2**20:g} MiB."
                self._upload.problem = FileTooLarge(limit)
        except AgentKernelError:
            return  # ``post`` sends this error after the body was read and dropped

    async def data_received(self, chunk: bytes) -> None:
        if self._upload is None:
            await super().data_received(chunk)
            return
        self._arrived_bytes += len(chunk)
        if self._arrived_bytes > self.max_accepted + DROPPED:
            self.send_error(413)
            return
        self._gathered += chunk
        if len(self._gathered) >= GATHERED:
            await self._feed()

    async def _feed(self) -> None:
        gathered, self._gathered = self._gathered, b""
        if self._upload is None or not gathered:
            return
        self._feeding = True
        try:
            await asyncio.to_thread(self._upload.feed, gathered)
        finally:
            self._feeding = False
            if self._left:
                self._drop()

    def on_finish(self) -> None:
        super().on_finish()
        self._drop()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._drop()

    def _drop(self) -> None:
        """Close the upload. While a thread writes to it, only note that the client has left; ``_feed`` then closes the
        upload when the thread has finished."""
        self._left = True
        if self._feeding:
            return
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()

    @guard("write")
    @operation(shapes.File | shapes.AnthropicFile, body=UPLOAD, query=(INTO, HOUSE), errors=(404, 507))
    async def post(self) -> None:
        """Upload a file."""
        upload = self._upload
        if upload is None:
            raise InvalidRequest("The upload was refused before its body was read.")
        await self._feed()
        arrived = await asyncio.to_thread(upload.finish)
        purpose = upload.fields.get("purpose", "user_data").strip()
        if purpose not in PURPOSES:
            raise InvalidRequest(f"purpose must be one of {', '.join(PURPOSES)}.", details={"param": "purpose"})
        lasts_s = lasting(upload.fields)
        queried = self.get_query_argument("session", "")
        session = upload.fields.get("session") or queried
        check_id(queried or UPLOADS)
        key = await self._key(session)
        if lasts_s is not None:
            await self.registry.expire(key.namespace)
        facts: dict[str, Any] = {"purpose": purpose, "mime": upload.mime, "lasts_s": lasts_s}
        file = await self.registry.receive(key, upload.filename, arrived, **facts)
        await self.services.sidecars.touch(key)
        self.reply(self.facts(file, key.id))

    async def _key(self, session: str) -> SessionKey:
        """Return the named session, created if needed; without a name, the kernel's own session or the user's
        session for files."""
        caller, store = self.caller, self.services.runtime.store
        if not session and caller.kernel is not None:
            place = await self.services.notebooks.place(caller.kernel.id)
            key, _ = await self.services.notebooks.ensure_session(caller.namespace, place, "")
            caller.kernel.sessions.add(key.id)
            return key
        key = SessionKey(caller.namespace, session or UPLOADS)
        if await self.services.access.claim_id(caller, key.id):
            await store.create(key, "" if session else "Uploaded files")
        return key

    @guard("read")
    @operation(shapes.Files | shapes.AnthropicFiles, query=LISTING, errors=(404,), conditions=BEHIND)
    async def get(self) -> None:
        """List files.

        The newest file comes first. With ``session``, only files of that session are listed, the oldest first.
        """
        limit = min(self.number("limit", LISTED) or LISTED, LISTED)
        if session := self.get_argument("session", ""):
            key = (await self.services.access.session(self.caller, session)).key
            listed = [(key, file) for file in await self.registry.files(key)]
        else:
            own = await self.services.access.own(self.caller)
            listed = await self.registry.everywhere(self.caller.namespace, own)
        if purpose := self.get_argument("purpose", ""):
            listed = [(key, file) for key, file in listed if file.purpose == purpose]
        if self.get_argument("order", "") == "asc" and not session:
            listed = listed[::-1]
        self.reply(self.page_of([self.facts(file, key.id) for key, file in listed], limit))


class FileHandler(FileAgentHandler):
    @guard("read")
    @operation(shapes.File | shapes.AnthropicFile, query=(SESSION, HOUSE), errors=(404,))
    async def get(self, id: str) -> None:
        """Get the metadata of a file."""
        key = await self.owner(id, self.get_argument("session", None))
        self.reply(self.facts(await self.registry.file(key, id), key.id))

    @guard("write")
    @operation(shapes.FileDeleted | shapes.AnthropicFileDeleted, query=(SESSION, HOUSE), errors=(404,))
    async def delete(self, id: str) -> None:
        """Delete a file.

        With ``session``, it is deleted from that session only; otherwise from all sessions that the caller may use.
        """
        session = self.get_argument("session", None)
        await self.owner(id, session)
        for key in await self.registry.sessions_of(self.caller.namespace, id):
            if session in (None, key.id) and await self.services.access.may_use(self.caller, key.id):
                await self.registry.remove(key, id)
                await self.services.sidecars.touch(key)
        deleted = {"id": id, "object": "file", "deleted": True}
        self.reply({"id": id, "type": "file_deleted"} if self.anthropic else deleted)


class FileContentHandler(FileAgentHandler):
    @guard("read")
    @operation(BODY, query=(SESSION, *CONDITIONS), also=PARTS, errors=(404, 410, 416, 422), conditions=WITHIN)
    async def get(self, id: str) -> None:
        """Download a file."""
        await self.send(await self.owner(id, self.get_argument("session", None)), id)


class ContainerFilesHandler(FileAgentHandler):
    """The files of a session under the container routes of OpenAI's API."""

    @guard("read")
    @operation(shapes.ContainerFiles, query=PAGES, errors=(404,), conditions=BEHIND)
    async def get(self, session_id: str) -> None:
        """List the files of a session."""
        key = (await self.services.access.session(self.caller, session_id)).key
        limit = min(self.number("limit", LISTED) or LISTED, LISTED)
        self.reply(self.page_of([container_file(file, key.id) for file in await self.registry.files(key)], limit))


class ContainerFileHandler(FileAgentHandler):
    @guard("read")
    @operation(shapes.ContainerFile, errors=(404,))
    async def get(self, session_id: str, id: str) -> None:
        """Get the metadata of a file in a session."""
        key = (await self.services.access.session(self.caller, session_id)).key
        self.reply(container_file(await self.registry.file(key, id), key.id))


class ContainerFileContentHandler(FileAgentHandler):
    @guard("read")
    @operation(BODY, query=CONDITIONS, also=PARTS, errors=(404, 410, 416, 422), conditions=WITHIN)
    async def get(self, session_id: str, id: str) -> None:
        """Download a file of a session."""
        await self.send((await self.services.access.session(self.caller, session_id)).key, id)
