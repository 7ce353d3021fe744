"""Makes each tool of an MCP server available as a tool of a turn, and offers a tool that reads the server's
resources."""

from __future__ import annotations

import asyncio
import base64
import binascii
import fnmatch
import json
import mimetypes
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema

from agent_kernel.core.events import CallOutput
from agent_kernel.core.files import ProducedFile, format_of
from agent_kernel.core.messages import Media, images_note, is_too_deep, is_visible_media
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.mcp.connection import McpConnection, McpServerUnavailable

DESCRIPTION_CHARS = 4_000
SCHEMA_BYTES = 64 << 10
SCHEMA_DEPTH = 32
PROGRESS_LINES = 200
PROGRESS_CHARS = 500
RESOURCES_NAMED = 40
KIND = "mcp"
MAX_STRUCTURED = 256 << 10
"""Maximum bytes of JSON that are kept in the details of a result."""
MAX_PARTS = 200
LONG_TEXT = 2_000_000
"""Maximum characters of one text that are kept. The model reads far less, because the toolbox shortens results
later."""


class McpTool:
    """One tool of an MCP server. ``limit`` is the semaphore that bounds the number of concurrent calls."""

    def __init__(self, name: str, tool: Any, connection: McpConnection, limit: asyncio.Semaphore) -> None:
        self._tool = tool
        self._connection = connection
        self._limit = limit
        server = connection.server
        hints = getattr(tool, "annotations", None)
        self.spec = ToolSpec(
            name,
            shorten_description(tool.description or f"The tool {tool.name} of {server.name}."),
            dict(tool.input_schema),
            kind=KIND,
            shared_state=not getattr(hints, "read_only_hint", False),
            source="mcp",
            label=f"{server.name}: {(tool.title or tool.name)[:100]}",
        )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        lines = 0

        async def progress(done: float, total: float | None, message: str | None) -> None:
            nonlocal lines
            lines += 1
            if lines <= PROGRESS_LINES:
                share = f"{done:g}/{total:g}" if total else f"{done:g}"
                context.emit(CallOutput(context.call.id, f"{(message or share)[:PROGRESS_CHARS]}\n", "stderr"))

        async def call() -> ToolOutput:
            return output_of(await self._connection.call(self._tool.name, dict(arguments), progress))

        return await answer_call(self._connection, self._limit, call)


class McpResources:
    """Reads resources that match a pattern of the configuration."""

    def __init__(self, name: str, connection: McpConnection, limit: asyncio.Semaphore) -> None:
        self._connection = connection
        self._limit = limit
        server = connection.server
        listed = connection.listed.resources if connection.listed else ()
        resource_lines = [
            f"{resource.uri} ({(resource.title or resource.name)[:100]})"
            for resource in listed
            if self._is_allowed(str(resource.uri))
        ]
        more = (
            f"\n... and {len(resource_lines) - RESOURCES_NAMED} more" if len(resource_lines) > RESOURCES_NAMED else ""
        )
        listing = "\n".join(resource_lines[:RESOURCES_NAMED]) + more
        patterns = ", ".join(server.resources)
        self.spec = ToolSpec(
            name,
            shorten_description(
                f"Read a resource of {server.name} by its URI ({patterns}). There are:\n{listing or '(none listed)'}"
            ),
            parameters(["uri"], uri={"type": "string", "description": "URI of the resource"}),
            kind=KIND,
            shared_state=False,
            source="mcp",
            label=f"{server.name}: read a resource",
        )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        uri = str(arguments["uri"])
        if not self._is_allowed(uri):
            return ToolOutput(f"{uri[:200]} is none of the resources that may be read here.", "error")

        async def read() -> ToolOutput:
            return read_output(await self._connection.read(uri))

        return await answer_call(self._connection, self._limit, read)

    def _is_allowed(self, uri: str) -> bool:
        return ".." not in uri and any(
            fnmatch.fnmatchcase(uri, resource) for resource in self._connection.server.resources
        )


async def answer_call(
    connection: McpConnection, limit: asyncio.Semaphore, call: Callable[[], Awaitable[ToolOutput]]
) -> ToolOutput:
    """Run one call and return its result; a failure is returned as a failed result, not raised. If the call is
    cancelled, the MCP server is notified."""
    server = connection.server
    async with limit:
        try:
            async with asyncio.timeout(server.timeout_s):
                return await call()
        except TimeoutError:
            text = f"{server.name} did not answer within {server.timeout_s:g} seconds; the call may have taken effect."
            return ToolOutput(text, "timeout")
        except McpServerUnavailable as gone:
            after = " It may have run, and was not tried again." if gone.ran else ""
            return ToolOutput(f"MCP server {server.name}: {gone.reason}{after}", "error")
        except Exception as error:  # noqa: BLE001  the SDK may raise anything; the model reads it
            return ToolOutput(connection.redact(f"MCP server {server.name}: {error}"), "error")


def shorten_description(text: str) -> str:
    return text if len(text) <= DESCRIPTION_CHARS else f"{text[: DESCRIPTION_CHARS - 3]}..."


def unusable(tool: Any) -> str:
    """Return why a tool cannot be offered: it only runs as a task, or no call can match its schema. Return an empty
    string if it can be offered."""
    if tool.execution is not None and tool.execution.task_support == "required":
        return "it can only run as a task, which is not supported"
    schema = tool.input_schema
    try:
        if schema.get("type", "object") != "object":
            return "its arguments are not an object"
        if len(json.dumps(schema)) > SCHEMA_BYTES or is_too_deep(schema, SCHEMA_DEPTH):
            return "its schema is too large"
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.SchemaError, ValueError, TypeError, RecursionError):
        return "its schema is not valid"
    return ""


# Converts results of an MCP server to tool results: text for the model, images, files, and details for programs.


@dataclass(slots=True)
class ResultParts:
    """The parts of a tool result, collected while the content of an MCP result is converted."""

    texts: list[str] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    files: list[ProducedFile] = field(default_factory=list)

    def add(self, part: Any) -> None:
        kind = getattr(part, "type", "")
        if kind == "text":
            self.texts.append(str(part.text)[:LONG_TEXT])
        elif kind in ("image", "audio"):
            self._bytes(part.data, part.mime_type or "", f"{kind}{len(self.media) + len(self.files) + 1}")
        elif kind == "resource":
            self.resource(part.resource)
        elif kind == "resource_link":
            self.texts.append(f"[resource {part.name}: {part.uri}]")
        else:
            self.texts.append(f"[a part of the unknown kind {str(kind)[:40]!r}]")

    def resource(self, resource: Any) -> None:
        """Add the text of a resource or, if it is not text, its bytes as a file."""
        text = getattr(resource, "text", None)
        if text is not None:
            self.texts.append(str(text)[:LONG_TEXT])
        else:
            name = PurePosixPath(unquote(urlsplit(str(resource.uri)).path)).name or "resource"
            self._bytes(resource.blob, resource.mime_type or "", name)

    def _bytes(self, encoded: str, mime: str, name: str) -> None:
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            self.texts.append(f"[{name}: the data is not valid base64]")
            return
        if is_visible_media(mime):
            self.media.append(Media.of(mime, data))
            return
        suffix = mimetypes.guess_extension(mime) or ""
        name = name if format_of(name) or not suffix else name + suffix
        self.files.append(ProducedFile(name, data, format_of(name)))


def output_of(result: Any) -> ToolOutput:
    """Convert the SDK's CallToolResult to a tool result. A result that the MCP server marks as an error becomes a
    failed result."""
    parts = _gather(result.content)
    details: dict[str, Any] = {}
    structured = result.structured_content
    if structured is not None:
        text = json.dumps(structured, ensure_ascii=False, default=str)
        if len(text.encode("utf-8", "replace")) <= MAX_STRUCTURED:
            details["structured"] = structured
        if not any(part.strip() for part in parts.texts):
            parts.texts.append(text)
    return _output(parts, "error" if result.is_error else "success", details)


def read_output(result: Any) -> ToolOutput:
    """Convert the SDK's ReadResourceResult to a tool result."""
    parts = ResultParts()
    for resource in list(result.contents)[:MAX_PARTS]:
        parts.resource(resource)
    return _output(parts, "success", {})


def _gather(content: Iterable[Any]) -> ResultParts:
    parts = ResultParts()
    content = list(content)
    for part in content[:MAX_PARTS]:
        parts.add(part)
    if len(content) > MAX_PARTS:
        parts.texts.append(f"[{len(content) - MAX_PARTS} more parts were left out]")
    return parts


def _output(parts: ResultParts, status: Any, details: dict[str, Any]) -> ToolOutput:
    texts = filter(None, [*parts.texts, images_note(len(parts.media))])
    text = "\n".join(texts) or ("(no output)" if not parts.files else "(files only)")
    return ToolOutput(text, status, tuple(parts.media), files=tuple(parts.files), details=details)
