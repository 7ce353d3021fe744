"""Offers the file tools of a turn."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from agent_kernel.core import safe_path
from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.files import File, clean_name, format_of, is_text, mime_of
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.code.surface_outputs import SurfaceOutputs
from agent_kernel.tools.files.document_text import FORMATS, Documents

MAX_SLICE = 65_536
SLICE = 6_000
"""Number of characters that are returned if the call names no end."""
MAX_TEXT = 256 << 20
CHUNK = 1 << 20
PARAMETERS = parameters(
    file_id={"type": "string", "description": "Id of a file of this conversation"},
    path={"type": "string", "description": "Instead of an id: a file in the work directory, relative"},
    start={"type": "integer", "minimum": 0, "description": "First character, from 0"},
    end={
        "type": "integer",
        "minimum": 0,
        "description": f"Position after the last character; without it {SLICE} characters, at most {MAX_SLICE}",
    },
)
LISTED = 100
"""Maximum number of files in the list; the newest ones are listed."""
LIST_PARAMETERS = parameters()


class FileTools:
    """Offers the file tools.

    With ``always``, every turn has them; otherwise the tools that read files are offered only to turns that have files.
    ``shell`` is true if turns have a shell, which uses the work directory wherever their Python code runs. ``fetches``
    is true if code in the work directory has network access, so that its files may contain text of unknown origin.
    """

    def __init__(
        self,
        files: FileRegistry,
        sandbox: Sandbox,
        documents: Documents,
        *,
        always: bool,
        shell: bool,
        fetches: bool = False,
    ) -> None:
        self._files = files
        self._sandbox = sandbox
        self._documents = documents
        self._always = always
        self._shell = shell
        self._fetches = fetches

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        request = occasion.request
        if not (self._always or request.inputs):
            return OfferedTools()
        works_there = request.where == "sandbox" or self._shell
        workdir = self._sandbox.workdir(occasion.key) if works_there else None
        tools: list[Tool] = [
            ReadFile(self._files, self._documents, workdir, fetches=self._fetches),
            ListFiles(self._files),
        ]
        if self._always and workdir is not None:
            tools.append(SurfaceOutputs(workdir))
        return OfferedTools(tuple(tool for tool in tools if occasion.wants("files", tool.spec.name)))


# Defines the ``read_file`` tool, which returns a slice of the text of a session file, or of a file in the work
# directory.


@dataclass(frozen=True, slots=True)
class OpenTextFile:
    """An open file with its metadata; ``key`` identifies its content."""

    id: str
    name: str
    format: str
    mime: str
    file: BinaryIO
    key: tuple[object, ...]


class ReadFile:
    """Implements the ``read_file`` tool. ``workdir`` is the work directory, to which paths are relative; None if the
    turn has none."""

    spec = ToolSpec(
        "read_file",
        "Read part of a file of this conversation as text, by its id or by its path in the work directory. Reads text, "
        "csv, pdf, xlsx, docx, ipynb and parquet files.",
        PARAMETERS,
        kind="files.read",
        where="server",
        shared_state=False,
        label="File access",
        result_chars=MAX_SLICE + 1_000,
    )

    def __init__(
        self, files: FileRegistry, documents: Documents, workdir: Path | None = None, *, fetches: bool = False
    ) -> None:
        self.spec = replace(self.spec, fetches=fetches)
        self._files = files
        self._documents = documents
        self._workdir = workdir

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        start = arguments.get("start", 0)
        end = min(arguments.get("end", start + SLICE), start + MAX_SLICE)
        try:
            source = await self._source(arguments, context)
            with closing(source.file):
                text, total = await self._slice(source, start, max(start, end))
        except (AgentKernelError, OSError) as error:
            return ToolOutput(str(error), "error")
        start = min(start, total)
        facts = {
            "file_id": source.id,
            "name": source.name,
            "format": source.format,
            "start": start,
            "end": start + len(text),
            "total_chars": total,
            "max_slice_chars": MAX_SLICE,
        }
        more = f"; go on with start={facts['end']}" if facts["end"] < total else ""
        head = f"{source.name}: characters {start} to {facts['end']} of {total}{more}"
        return ToolOutput(f"{head}\n{text}", details={name: value for name, value in facts.items() if value != ""})

    async def _source(self, arguments: Mapping[str, Any], context: ToolContext) -> OpenTextFile:
        id, path = arguments.get("file_id", ""), arguments.get("path", "")
        if bool(id) == bool(path):
            raise InvalidRequest("Give either a file_id or a path.", hint="list_files returns the ids.")
        if path:
            return await asyncio.to_thread(self._open_in_workdir, path)
        file, body = await self._files.open(context.key, id)
        opened = io.BytesIO(body) if isinstance(body, bytes) else await asyncio.to_thread(body.open, "rb")
        return OpenTextFile(file.id, file.name, file.format or format_of(file.name), file.mime, opened, (file.hash,))

    def _open_in_workdir(self, path: str) -> OpenTextFile:
        if self._workdir is None:
            raise InvalidRequest("There is no work directory here.", hint="Give a file_id.")
        try:
            opened = os.fdopen(safe_path.open_file(self._workdir, path), "rb")
        except OSError as error:
            raise InvalidRequest(f"There is no file {path[:200]!r} in the work directory.") from error
        status, form = os.fstat(opened.fileno()), format_of(path)
        key = (str(self._workdir), path, status.st_size, status.st_mtime_ns)
        return OpenTextFile("", clean_name(path), form, mime_of(form), opened, key)

    async def _slice(self, source: OpenTextFile, start: int, end: int) -> tuple[str, int]:
        if source.format in FORMATS:
            whole = source.file.getvalue() if isinstance(source.file, io.BytesIO) else source.file
            text = await self._documents.text(source.format, whole, (source.format, *source.key))
            return text[start:end], len(text)
        return await asyncio.to_thread(read_slice, source.file, start, end, text=is_text(source.mime))


def read_slice(file: BinaryIO, start: int, end: int, *, text: bool) -> tuple[str, int]:
    """Return characters ``start`` to ``end`` and the total number, in constant memory for files of any size.

    With ``text``, the file is declared as text, and invalid UTF-8 is replaced by U+FFFD. Otherwise, a file that is not
    valid UTF-8 or contains a NUL raises InvalidRequest.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace" if text else "strict")
    pieces: list[str] = []
    total = size = 0
    chunk = b"..."
    while chunk:
        chunk = file.read(CHUNK)
        size += len(chunk)
        if size > MAX_TEXT:
            raise InvalidRequest(f"A file of more than {MAX_TEXT >> 20} MiB is not read here: use python or shell.")
        try:
            piece = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError:
            piece = "\0"
        if not text and "\0" in piece:
            raise InvalidRequest("This file is not a text file.", hint="Open it with python, in the work directory.")
        pieces.append(piece[max(0, start - total) : max(0, end - total)])
        total += len(piece)
    return "".join(pieces), total


# Defines the ``list_files`` tool, which lists the files of this session with their ids.


class ListFiles:
    spec = ToolSpec(
        "list_files",
        "List the files of this conversation: what tools made and what the person brought, oldest first.",
        LIST_PARAMETERS,
        kind="files.read",
        where="server",
        shared_state=False,
        label="File access",
        result_chars=20_000,
    )

    def __init__(self, files: FileRegistry) -> None:
        self._files = files

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        files = await self._files.files(context.key)
        newest = files[-LISTED:]
        left_out = [f"({len(files) - len(newest)} older ones are not listed)"] if len(newest) < len(files) else []
        text = "\n".join([*left_out, *map(_line, newest)]) or "There are no files."
        return ToolOutput(text, details={"files": [_facts(file) for file in newest]})


def _line(file: File) -> str:
    if file.error:
        return f"- {file.name}: {file.message}"
    whose = f"made by {file.tool or 'a tool'}" if file.purpose == "agent_output" else "brought by the person"
    return f"- {file.id}: {file.name} ({file.mime}, {file.size} bytes), {whose} in turn {file.turn + 1}"


def _facts(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "name": file.name,
        "format": file.format,
        "bytes": file.size,
        "purpose": file.purpose,
        "source": file.tool,
        "round": file.round,
        "turn": file.turn,
    }
