"""Reads and writes the files of a session as mistral.rs's file objects. The bytes of small files are included. The
functions have no side effects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from agent_kernel.core import files
from agent_kernel.core.files import File
from agent_kernel.sessions.export.formats.json_reader import LAST_TIME, Fields
from agent_kernel.sessions.export.formats.message_reader import decode_base64

MAX_FILES = 10_000
_ID = re.compile(r"file[-_][A-Za-z0-9_.-]{1,100}")
_WORD = re.compile(r"[A-Za-z0-9_.+-]{0,40}")
_MIME = re.compile(r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,120}")


def write(file: File, data: bytes | None) -> dict[str, Any]:
    """Return the JSON object of a file, with its bytes unless ``data`` is None. ``hash`` and the exact time are
    additions of agent-kernel; mistral.rs ignores unknown fields."""
    body = {**file.to_json(), "created": file.created} | ({"hash": file.hash} if file.hash else {})
    return body if data is None else files.with_body(body, data, text=file.is_text)


def read(bodies: Iterable[Fields]) -> Iterator[tuple[File, bytes | None]]:
    """Yield each file with its bytes, if the document contains them. Raises InvalidRequest for a duplicate id, bytes
    that do not match their hash, and more than MAX_FILES files."""
    seen: set[str] = set()
    for body in bodies:
        file, data = _read_file(body)
        if file.id in seen or len(seen) == MAX_FILES:
            body.refuse(f"its id occurs twice, or there are more than {MAX_FILES} files")
        seen.add(file.id)
        yield file, data


def _read_file(body: Fields) -> tuple[File, bytes | None]:
    """Return a file and its bytes, which are None if the document does not contain them. A file with neither bytes nor
    hash is missing: its error code is the one in the document, or BODY_OMITTED if the document has none."""
    text, encoded = body.child("text"), body.child("data_base64")
    data = text.value.encode("utf-8", "surrogatepass") if isinstance(text.value, str) else None
    if data is None and encoded.value is not None:
        data = decode_base64(encoded)
    digest = body.get("hash", str, "")
    if data is not None and digest not in ("", hashlib.sha256(data).hexdigest()):
        body.refuse("the bytes do not match their hash")
    if digest and re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        body.refuse("a hash is 64 hexadecimal digits")
    digest = hashlib.sha256(data).hexdigest() if data is not None else digest
    error = "" if digest else _word(body, "code") or files.BODY_OMITTED
    size = len(data) if data is not None else body.count("bytes", 0) if digest else 0
    source = body.child("source") if isinstance(body.child("source").value, dict) else Fields({}, body.place)
    return File(
        _id(body),
        files.clean_name(body.get("name", str, "file")),
        _mime(body),
        size,
        _parse_created(body),
        _word(body, "format"),
        _word(body, "purpose") or "agent_output",
        files.clean_name(source.get("tool", str, ""))[:100] if source.get("tool", str, "") else "",
        source.count("round", 0),
        source.count("turn", 0),
        digest,
        body.utf8("preview", "")[: files.PREVIEW_CHARS],
        error,
        body.utf8("message", "")[:1000] if error else "",
        float(min(body.count("expires_at", 0), int(LAST_TIME))),
    ), data


def _id(body: Fields) -> str:
    """Return the id of the file in the document if it has the form of a file id, since messages refer to files by id;
    otherwise an id that is derived from it."""
    id = body.get("id", str, "")
    return id if _ID.fullmatch(id) else f"file-{hashlib.sha256((body.place + id).encode()).hexdigest()[:32]}"


def _word(body: Fields, name: str) -> str:
    value = body.get(name, str, "")
    return value if _WORD.fullmatch(value) else ""


def _mime(body: Fields) -> str:
    mime = body.get("mime_type", str, files.OCTETS)
    return mime if _MIME.fullmatch(mime) else files.OCTETS


def _parse_created(body: Fields) -> float:
    if body.child("created").value is not None:
        return body.time("created")
    return float(min(body.count("created_at", 0), int(LAST_TIME)))
