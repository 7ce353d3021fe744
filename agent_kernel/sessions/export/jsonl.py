"""Reads and writes a session as JSON Lines: one JSON object per line, each with a hash over itself and all lines before
it. The functions have no side effects.

    {"type":"session","format":2,"session":{...},"sha256":"..."}
    {"type":"segment"|"branch"|"turn"|"summary", ..., "sha256":"..."}
    {"type":"item","seq":...,"message":{...},"sha256":"..."}
    {"type":"medium","hash":...,"mime":...,"size":...,"data":BASE64,"sha256":"..."}
    {"type":"file","file":{"id":...,"name":...,"text" or "data_base64":...},"sha256":"..."}
    {"type":"end","lines":N,"sha256":"..."}

A reader can process one line at a time, and can check after each line that nothing was changed so far. The hash of a
line is computed over the hash of the line before (empty for the first line) and the bytes of the line up to its own
hash. Media stand before the items.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from agent_kernel.core.messages import Media, Message
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export import transcript, transcript_reader
from agent_kernel.sessions.export.formats import mistralrs_files
from agent_kernel.sessions.export.formats.json_reader import Fields, loads
from agent_kernel.sessions.export.formats.message_list import message_to_json
from agent_kernel.sessions.export.formats.message_reader import MessageReader, medium
from agent_kernel.sessions.serialization import dumps

START = b'{"type":"session","format":'
FORMAT = 2
"""The version of the row format. Each line can be read without the line before it, so the rows are complete, as in
format 2 of ``transcript.py``."""
MAX_LINE = 64 * 2**20
MAX_LINES = 1_000_000
_HASHED = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\s*\Z')
_LISTS = {"segment": "segments", "branch": "branches", "turn": "turns", "summary": "summaries", "item": "items"}


def write(whole: Transcript) -> Iterator[bytes]:
    """Yield the lines of the document, each with its line end."""
    digest, count = "", 0
    for body in _bodies(whole):
        line, digest = _hash_line(body, digest)
        count += 1
        yield line
    yield _hash_line({"type": "end", "lines": count}, digest)[0]


def read(lines: Iterable[bytes], namespace: str) -> Transcript:
    """Parse the lines of a document; blank lines are skipped. Raises InvalidRequest, which names the line, also if a
    line was changed or is missing."""
    reader = _JsonlReader()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            reader.add(Fields(None, f"line {number}"), line)
    return reader.transcript(namespace)


def _hash_line(body: dict[str, Any], before: str) -> tuple[bytes, str]:
    open_end = dumps(body)[:-1].encode()
    digest = hashlib.sha256(before.encode() + open_end).hexdigest()
    return open_end + f',"sha256":"{digest}"}}\n'.encode(), digest


def _bodies(whole: Transcript) -> Iterator[dict[str, Any]]:
    facts = transcript.facts(whole)
    yield {"type": "session", "format": FORMAT, "session": facts["session"]}
    for kind in ("segment", "branch", "turn"):
        yield from ({"type": kind, **body} for body in facts[_LISTS[kind]])
    yield from (_medium(named, whole.blobs.get(digest)) for digest, named in whole.media.items())
    for item, body in zip(whole.items, facts["items"], strict=True):
        # The message refers to its media by hash; the bytes are written in lines of their own.
        yield {"type": "item", **body, "message": message_to_json(item.message)}
    for file in whole.files:
        yield {"type": "file", "file": mistralrs_files.write(file, whole.blobs.get(file.hash))}
    yield from ({"type": "summary", **body} for body in facts["summaries"])


def _medium(medium: Media, data: bytes | None) -> dict[str, Any]:
    body = {"type": "medium", "hash": medium.hash, "mime": medium.mime, "size": medium.size}
    return body | ({"data": base64.b64encode(data).decode("ascii")} if data is not None else {})


class _JsonlReader:
    """The state of reading one document: the hash of the last line, and what the lines so far contained."""

    def __init__(self) -> None:
        self._own: dict[str, Any] = {name: [] for name in _LISTS.values()}
        self._reader = MessageReader(Fields({}, "document"))
        self._messages: list[Message] = []
        self._files: list[Fields] = []
        self._blobs: dict[str, bytes] = {}
        self._digest = ""
        self._count = 0
        self._ended = False

    def add(self, place: Fields, line: bytes) -> None:
        if self._ended:
            place.refuse("there are lines after the end")
        hashed = _HASHED.search(line)
        open_end = line[: hashed.start()] if hashed else b""
        self._digest = hashlib.sha256(self._digest.encode() + open_end).hexdigest()
        if hashed is None or hashed[1].decode() != self._digest:
            place.refuse("its hash does not match: the line was changed, or a line before it is missing")
        read = loads(line, MAX_LINE, transcript.MAX_DEPTH)
        self._add_body(Fields(read.value, place.place))
        self._count += 1
        if self._count > MAX_LINES:
            place.refuse(f"there are more than {MAX_LINES} lines")

    def _add_body(self, body: Fields) -> None:
        kind = body.get("type", str)
        if (kind == "session") != (self._count == 0):
            body.refuse("the session line must be the first line, and there must be only one")
        match kind:
            case "session":
                transcript_reader.read_format(body)
                self._own["session"] = body.get("session", dict)
            case "medium":
                if body.child("data").value is not None:
                    reference = medium(body)
                    self._blobs[reference.hash] = transcript_reader.verified_bytes(body, reference)
            case "file":
                self._files.append(body.child("file"))
            case "end":
                self._ended = True
                if body.get("lines", int) != self._count:
                    body.refuse("its number of lines is wrong")
            case _ if kind in _LISTS:
                if kind == "item":
                    self._messages.append(self._reader.message(body.child("message")))
                self._own[_LISTS[kind]].append(body.value)
            case _:
                body.refuse(f"unknown line type {kind[:80]!r}")

    def transcript(self, namespace: str) -> Transcript:
        place = Fields(self._own, "document")
        if not self._ended:
            place.refuse("the end is missing: the document was cut off")
        return transcript_reader.build_transcript(place, namespace, self._messages, self._blobs, files=self._files)
