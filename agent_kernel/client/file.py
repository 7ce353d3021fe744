"""Represents a file of a session: its metadata, its content if the server included it, and methods that fetch the
rest."""

from __future__ import annotations

import asyncio
import base64
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_kernel.client.http import ServerConnection
from agent_kernel.core.errors import AgentKernelError, FileGone, FileNotProduced
from agent_kernel.core.files import NOT_PRODUCED, PREVIEW_CHARS, is_text
from agent_kernel.notebook.server_client import route


@dataclass(frozen=True, slots=True)
class File:
    """A file of a session.

    ``size`` is in bytes, ``created_at`` in whole seconds since the epoch. ``source`` is the tool, the round and the
    turn that produced it. ``error`` explains why a file does not exist.
    """

    id: str
    name: str
    size: int
    mime_type: str = ""
    format: str = ""
    created_at: int = 0
    purpose: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""
    error: AgentKernelError | None = None
    text: str | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)
    server_preview: str = field(default="", repr=False)
    """The preview that the server created."""
    connection: ServerConnection | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any], session: str = "", connection: ServerConnection | None = None) -> File:
        """Read the JSON of an event (``name``) or of the files route (``filename``)."""
        code, binary = str(wire.get("code", "")), wire.get("data_base64")
        return cls(
            str(wire["id"]),
            str(wire.get("name", wire.get("filename", ""))),
            int(wire.get("bytes", 0)),
            str(wire.get("mime_type", "")),
            str(wire.get("format", "")),
            int(wire.get("created_at", 0)),
            str(wire.get("purpose", "")),
            dict(wire.get("source") or {}),
            str(wire.get("session", session)),
            _missing(code, str(wire.get("message", ""))) if code else None,
            wire.get("text"),
            base64.b64decode(binary) if isinstance(binary, str) else None,
            str(wire.get("preview", "")),
            connection,
        )

    @property
    def is_text(self) -> bool:
        return self.text is not None or is_text(self.mime_type)

    @property
    def preview(self) -> str:
        """The beginning of a text file; empty for other files."""
        return self.server_preview or (self.text or "")[:PREVIEW_CHARS]

    def as_text(self) -> str | None:
        """Return the text of the file if the server included it, otherwise None."""
        return self.text

    def as_bytes(self) -> bytes | None:
        """Return the bytes of the file if the server included them, otherwise None."""
        return self.text.encode() if self.text is not None else self.data

    def is_truncated(self) -> bool:
        """Return whether the server included only a part of the content; ``read`` fetches all of it."""
        return self.as_bytes() is None and self.size > 0

    async def read(self) -> bytes:
        """Return the whole body. Raises FileNotProduced, FileGone, FileNotFound, ServerUnreachable."""
        included = self.as_bytes()
        if included is not None:
            return included
        connection, path, query = self._content()
        return (await connection.send("GET", path, query=query, headers={"Accept": "*/*"})).content

    async def read_text(self) -> str:
        """Return the whole content as text. Raises UnicodeDecodeError if it is not text, and the errors of ``read``."""
        return (await self.read()).decode()

    async def save(self, path: str | os.PathLike[str]) -> Path:
        """Save the file to ``path``, or under its own name if ``path`` is a folder. Return the path of the saved file.

        An existing file is replaced once the download is complete. Raises OSError, and the errors of ``read``.
        """
        target = await asyncio.to_thread(self._target, path)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as part:
            try:
                included = self.as_bytes()
                if included is not None:
                    await asyncio.to_thread(part.write, included)
                else:
                    await self._download(part)
                part.close()
                await asyncio.to_thread(os.replace, part.name, target)
            except BaseException:  # also a cancelled download leaves no partial file
                part.close()
                os.unlink(part.name)
                raise
        return target

    async def _download(self, into: Any) -> None:
        connection, path, query = self._content()
        async with connection.stream("GET", path, query=query, headers={"Accept": "*/*"}) as (_, pieces):
            async for piece in pieces:
                await asyncio.to_thread(into.write, piece)

    def _target(self, path: str | os.PathLike[str]) -> Path:
        """Return the path to write. Of the file's own name, only the last path segment is used, because the name may
        come from a model."""
        target = Path(path).expanduser()
        last = self.name.replace("\\", "/").rpartition("/")[2]
        return target / (last if last not in ("", ".", "..") else self.id) if target.is_dir() else target

    def _content(self) -> tuple[ServerConnection, str, dict[str, str | None]]:
        if self.error is not None:
            raise self.error
        if self.connection is None:
            raise FileGone(
                "The content of this file was not included, and there is no connection to fetch it.",
                hint="Get the file from a client: client.files.get(id).",
            )
        return self.connection, route("files", self.id, "content"), {"session": self.session or None}


def _missing(code: str, message: str) -> AgentKernelError:
    kind = FileNotProduced if code == NOT_PRODUCED else FileGone
    return kind(message or code, details={"code": code})
