"""Converts results of an MCP server to tool results: text for the model, images, files, and details for programs."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from agent_kernel.core.files import ProducedFile, format_of
from agent_kernel.core.messages import Media, is_visible_media
from agent_kernel.core.protocols import ToolOutput

MAX_STRUCTURED = 256 << 10
"""Maximum bytes of JSON that are kept in the details of a result."""
MAX_PARTS = 200
LONG_TEXT = 2_000_000
"""Maximum characters of one text that are kept. The model reads far less, because the toolbox shortens results
later."""


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
    texts = [text for text in parts.texts if text]
    if parts.media:
        texts.append(f"[{len(parts.media)} image(s) shown]")
    text = "\n".join(texts) or ("(no output)" if not parts.files else "(files only)")
    return ToolOutput(text, status, tuple(parts.media), files=tuple(parts.files), details=details)
