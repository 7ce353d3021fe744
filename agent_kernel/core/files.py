"""Files of a conversation: what a tool produced and what a person brought, as values that know no disk.

Names, formats and sizes follow mistral.rs's file objects, so that its clients read ours.
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
"""Larger bodies are not put into events and answers; they are fetched by id."""
PREVIEW_BYTES = 1024
"""Of a text that a tool produced, shown to the model."""
INPUT_PREVIEW_CHARS = 4_096
INPUTS_PREVIEW_CHARS = 32_768
"""Of one input file, and of all of a request."""
PREVIEW_CHARS = INPUT_PREVIEW_CHARS
"""What is kept of a text to show it without its bytes."""
MAX_NAME = 255
MAX_DESCRIBED = 20
"""Files of one call that a model is told of, one by one."""
NOT_PRODUCED = "not_produced"
BODY_OMITTED = "elided"
"""The error of a file that came without its bytes: they were too large for what it came in."""
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
    """A file that a request asks for. ``name`` is relative to the session's work directory."""

    name: str
    format: str = ""
    description: str = ""

    @property
    def path(self) -> str:
        """The name as it is written in one way only: without ``./`` and ``//``."""
        return PurePosixPath(self.name).as_posix()


@dataclass(frozen=True, slots=True)
class ProducedFile:
    """A file that a tool made, not yet kept: its bytes, or the path where they lie, or why there are none (a code).

    ``declared``: somebody asked for it by name; else it was found in the work directory. A path below ``root``, which
    other programs write to, is read without following a link out of it.
    """

    name: str
    data: bytes | Path = b""
    format: str = ""
    error: str = ""
    declared: bool = False
    root: Path | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file that is kept with a session. ``purpose`` is agent_output or user_data; ``tool``, ``round`` and ``turn``
    (0-based, of its session) say where it comes from. ``preview`` is the beginning of a text. ``error`` is a code, with
    ``message``, for a file that does not exist (``size`` 0); ``hash`` names the bytes of one that does.
    ``expires``: when it goes by itself, in seconds since the epoch; 0: with its session."""

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
        """Without its body. Times in whole seconds since the epoch, as on mistral.rs's wire."""
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
    """A file as it was kept, and as it goes over the wire, with its body where that is small."""

    file: File
    wire: Mapping[str, Any]


def describe_files(files: Sequence[File]) -> str:
    """What a model reads of files: where TOLD of them are to be had, and how the texts among those begin, PREVIEW_BYTES
    of each and four times that of all."""
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
    """The JSON of a file with its bytes: as ``text`` where they are one, else ``data_base64``."""
    if text:
        try:
            return {**facts, "text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {**facts, "data_base64": base64.b64encode(data).decode("ascii")}


def format_of(name: str) -> str:
    """The extension in lower case; empty without one."""
    return Path(name).suffix.removeprefix(".").lower()


def mime_of(format: str) -> str:
    """Of a format in any case; ``application/octet-stream`` when it is not known."""
    known = _MIME_BY_EXTENSION.get(format.lower())
    return known or mimetypes.types_map.get(f".{format.lower()}", OCTETS)


def clean_name(name: str) -> str:
    """As it is kept and shown: on one line, valid Unicode, without characters that are not seen; at most MAX_NAME, of
    which the end stays. Separators stay too: it is no path to open."""
    cleaned = "".join("_" if unicodedata.category(char) in _INVISIBLE_CATEGORIES else char for char in name).strip()
    return cleaned[-MAX_NAME:] or "file"


def is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in _TEXT_TYPES


def cut_bytes(text: str, limit: int) -> str:
    """The longest beginning of ``text`` with at most ``limit`` bytes of UTF-8."""
    return text.encode()[:limit].decode(errors="ignore") if len(text.encode()) > limit else text
