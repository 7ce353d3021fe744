"""Files of a conversation, produced by tools or uploaded by people, as values without a disk.

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
"""Larger bodies are not included in events and answers; clients fetch them by id."""
PREVIEW_BYTES = 1024
"""Size of the preview of a produced text file that the model sees."""
INPUT_PREVIEW_CHARS = 4_096
INPUTS_PREVIEW_CHARS = 32_768
"""Preview limits for one input file (``INPUT_PREVIEW_CHARS``) and for all inputs of a request together."""
PREVIEW_CHARS = INPUT_PREVIEW_CHARS
"""Characters of a text that are stored as its preview."""
MAX_NAME = 255
MAX_DESCRIBED = 20
"""Maximum number of files of one call that are described to the model individually."""
NOT_PRODUCED = "not_produced"
BODY_OMITTED = "elided"
"""Error code of a file whose bytes were too large for the document that contained it."""
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
OCTETS = "application/octet-stream"
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
    """A file that a request asks for; ``name`` is relative to the session's work directory."""

    name: str
    format: str = ""
    description: str = ""

    @property
    def path(self) -> str:
        """The name in its normal form, without ``./`` and ``//``."""
        return PurePosixPath(self.name).as_posix()


@dataclass(frozen=True, slots=True)
class ProducedFile:
    """A file that a tool made and that is not stored yet: its bytes, their path, or an error code.

    ``declared`` is true if the file was requested by name, and false if it was found in the work directory. A path
    below ``root``, to which other programs write, is read without following links out of it.
    """

    name: str
    data: bytes | Path = b""
    format: str = ""
    error: str = ""
    declared: bool = False
    root: Path | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file that is stored with a session.

    ``purpose`` is agent_output or user_data; ``tool``, ``round`` and ``turn`` (0-based within the session) are its
    origin. ``preview`` is the beginning of a text. ``hash`` names the bytes. A file that does not exist has an
    ``error`` code with a ``message``, and ``size`` 0. ``expires`` is when the file is deleted automatically (seconds
    since the epoch); 0 means with its session.
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
        """Return the file as JSON, without its body. Times are whole seconds since the epoch, as on mistral.rs's
        wire."""
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
    """A stored file and its wire form, which includes the body if that is small."""

    file: File
    wire: Mapping[str, Any]


def describe_files(files: Sequence[File]) -> str:
    """Return the description of files that the model reads.

    At most MAX_DESCRIBED files are listed, with the beginning of those that are texts: PREVIEW_BYTES of each, and four
    times that in total.
    """
    lines, room = ["Files:"], 4 * PREVIEW_BYTES
    for file in files[:MAX_DESCRIBED]:
        if file.error:
            lines.append(f"- {file.name}: {file.message}")
            continue
        lines.append(f"- {file.name} ({file.mime}, {file.size} bytes, id {file.id})")
        if file.is_text and (shown := cut_bytes(file.preview, min(PREVIEW_BYTES, room))):
            room -= len(shown.encode())
            lines += [f"    {line}" for line in shown.splitlines()]
            lines += ["    ..."] if len(shown.encode()) < file.size else []
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
    known = _MIME_BY_EXTENSION.get(format.lower())
    return known or mimetypes.types_map.get(f".{format.lower()}", OCTETS)


def clean_name(name: str) -> str:
    """Return ``name`` as it is stored and shown: on one line, as valid Unicode, and without invisible characters.

    The result keeps the last MAX_NAME characters. Separators stay, so it is not a path to open.
    """
    cleaned = "".join("_" if unicodedata.category(char) in _INVISIBLE_CATEGORIES else char for char in name).strip()
    return cleaned[-MAX_NAME:] or "file"


def is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in _TEXT_TYPES


def cut_bytes(text: str, limit: int) -> str:
    """Return the longest prefix of ``text`` that has at most ``limit`` bytes of UTF-8."""
    return text.encode()[:limit].decode(errors="ignore") if len(text.encode()) > limit else text
