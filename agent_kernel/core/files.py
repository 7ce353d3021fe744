"""Defines the values that describe files of a conversation, which tools produce or people upload. Does no I/O.

Names, formats and sizes follow mistral.rs's file objects, so that its clients can read them.
"""

from __future__ import annotations

import base64
import mimetypes
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

INLINE_BYTES = 8 << 20
"""Maximum number of bytes of a file's body that is included in events and answers; clients fetch larger bodies by
id."""
PREVIEW_BYTES = 1024
"""Maximum bytes of a produced text file that the model sees as its preview."""
INPUT_PREVIEW_CHARS = 4_096
INPUTS_PREVIEW_CHARS = 32_768
"""Maximum characters of the previews that the model sees: of one input file (``INPUT_PREVIEW_CHARS``), and of all input
files of a request together (``INPUTS_PREVIEW_CHARS``)."""
PREVIEW_CHARS = INPUT_PREVIEW_CHARS
"""Maximum characters of a text file that are stored as its preview."""
MAX_NAME = 255
MAX_DESCRIBED = 20
"""Maximum number of files of one call that are described to the model individually."""
NOT_PRODUCED = "not_produced"
BODY_OMITTED = "elided"
"""Error code of a file whose bytes were too large for the document that contained it."""
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
OCTETS = "application/octet-stream"
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_MIME_BY_EXTENSION = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "md": "text/markdown",
    "markdown": "text/markdown",
    "geojson": "application/json",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "yaml": "application/x-yaml",
    "yml": "application/x-yaml",
    "toml": "application/toml",
    "sql": "application/sql",
    "tex": "application/x-tex",
    "py": "text/x-python",
    "ipynb": "application/x-ipynb+json",
    "parquet": "application/vnd.apache.parquet",
}
_TEXT_TYPES = {
    "application/json",
    "application/geo+json",
    "application/jsonl",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/sql",
    "application/x-tex",
    "application/x-ipynb+json",
    "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class RequestedFile:
    """A file that a request asks the turn to produce. ``name`` is its path relative to the session's work directory."""

    name: str
    format: str = ""
    description: str = ""

    @property
    def path(self) -> str:
        """The name in its normal form, without ``./`` and ``//``."""
        return PurePosixPath(self.name).as_posix()


@dataclass(frozen=True, slots=True)
class ProducedFile:
    """A file that a tool produced and that is not stored yet. ``data`` is its bytes or the path of a file with them; a
    file that does not exist has an ``error`` code.

    ``root`` is a directory to which other programs write. A path below it is read without following links that lead out
    of it.
    """

    name: str
    data: bytes | Path = b""
    format: str = ""
    error: str = ""
    root: Path | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file that is stored with a session.

    ``purpose`` is agent_output or user_data. ``tool``, ``round`` and ``turn`` say where it comes from; rounds and turns
    count from 0. ``preview`` is the beginning of a text file, and ``hash`` the SHA-256 of the bytes. A file without
    bytes has an ``error`` code with a ``message``, and ``size`` 0. ``expires`` is the time at which the file is deleted
    automatically, in seconds since the epoch; 0 means that it is deleted with its session.
    """

    id: str
    name: str
    mime: str
    size: int
    created: float
    format: str = ""
    purpose: str = "agent_output"
    tool: str = ""
    round: int = 0
    turn: int = 0
    hash: str = ""
    preview: str = ""
    error: str = ""
    message: str = ""
    expires: float = 0.0

    @property
    def is_text(self) -> bool:
        return is_text(self.mime)

    def to_json(self) -> dict[str, Any]:
        """Return the file as JSON, without its body. Times are whole seconds since the epoch, as in mistral.rs."""
        body: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "mime_type": self.mime,
            "bytes": self.size,
            "created_at": int(self.created),
            "purpose": self.purpose,
            "source": {"tool": self.tool, "round": self.round, "turn": self.turn},
        }
        optional: dict[str, Any] = {"format": self.format, "preview": self.preview, "code": self.error}
        optional |= {"message": self.message, "expires_at": int(self.expires)}
        return body | {key: value for key, value in optional.items() if value}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A stored file, and its JSON form (``wire``), which includes the body if that is small."""

    file: File
    wire: Mapping[str, Any]


def describe_files(files: Sequence[File]) -> str:
    """Return a text that describes the files to the model.

    At most MAX_DESCRIBED files are listed. For text files the description includes the beginning: at most PREVIEW_BYTES
    of each file, and at most four times PREVIEW_BYTES of all files together.
    """
    lines, room = ["Files:"], 4 * PREVIEW_BYTES
    for file in files[:MAX_DESCRIBED]:
        if file.error:
            lines.append(f"- {file.name}: {file.message}")
            continue
        lines.append(f"- {file.name} ({file.mime}, {file.size} bytes, id {file.id})")
        if file.is_text and (excerpt := cut_bytes(file.preview, min(PREVIEW_BYTES, room))):
            room -= len(excerpt.encode())
            lines += [f"    {line}" for line in excerpt.splitlines()]
            lines += ["    ..."] if len(excerpt.encode()) < file.size else []
    if len(files) > MAX_DESCRIBED:
        lines.append(f"- and {len(files) - MAX_DESCRIBED} more: list_files has all")
    return "\n".join(lines)


def with_body(facts: Mapping[str, Any], data: bytes, *, text: bool) -> dict[str, Any]:
    """Return ``facts``, the JSON object that describes a file, with the content ``data`` added to it.

    The content is the value of ``text`` if the argument ``text`` is true and ``data`` is valid UTF-8, otherwise the
    value of ``data_base64``.
    """
    if text:
        try:
            return {**facts, "text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {**facts, "data_base64": base64.b64encode(data).decode("ascii")}


def format_of(name: str) -> str:
    """Return the file extension in lower case; empty if there is none."""
    return Path(name).suffix.removeprefix(".").lower()


def mime_of(format: str) -> str:
    """Return the MIME type of a format, ignoring case; ``application/octet-stream`` if it is unknown."""
    mime = _MIME_BY_EXTENSION.get(format.lower())
    return mime or mimetypes.types_map.get(f".{format.lower()}", OCTETS)


def picture_type(data: bytes) -> str:
    """Return the MIME type of a PNG, JPEG, GIF or WebP image by its first bytes; empty for other data."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for beginning, mime in _PICTURES.items() if data.startswith(beginning)), "")


def clean_name(name: str) -> str:
    """Return ``name`` as it is stored and shown: on one line, as valid Unicode, and without invisible characters.

    Of a long name the last MAX_NAME characters are kept. The result may contain path separators, so it must not be used
    as a path.
    """
    cleaned = "".join("_" if unicodedata.category(char) in _INVISIBLE_CATEGORIES else char for char in name).strip()
    return cleaned[-MAX_NAME:] or "file"


def is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in _TEXT_TYPES


def cut_bytes(text: str, limit: int) -> str:
    """Return the longest prefix of ``text`` that has at most ``limit`` bytes of UTF-8."""
    return text.encode()[:limit].decode(errors="ignore") if len(text.encode()) > limit else text
