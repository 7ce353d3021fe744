"""What passes between a kernel and its draft, as bytes. Pure: the child's side is not to be trusted, whatever it sends.

A frame is a kind (one byte), a length (four) and a body: text, or JSON.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

HEAD = struct.Struct(">cI")
OUT, ERR, VALUE, SHOW, READY, DONE, RUN = b"o", b"e", b"v", b"s", b"r", b"d", b"c"
FORKED, KEEPER = b"f", b"k"
"""FORKED: the draft has forked itself before a call. KEEPER: its keeper reports a process that began or ended."""
STREAMS = {OUT: "stdout", ERR: "stderr", VALUE: "value"}
OF_STREAM = {name: kind for kind, name in STREAMS.items()}
MAX_FRAME = 48 << 20
"""Bytes: a picture, or what a call ends with. A longer one ends the draft."""
TEXT_BYTES = 60_000


class BadFrame(ValueError):
    """What came is no frame of ours."""


def encoded(kind: bytes, body: bytes) -> bytes:
    return HEAD.pack(kind, len(body)) + body


def of_text(stream: str, text: str) -> Iterator[bytes]:
    """Printed text, in pieces."""
    raw = text.encode(errors="replace")
    for start in range(0, len(raw), TEXT_BYTES):
        yield encoded(OF_STREAM.get(stream, OUT), raw[start : start + TEXT_BYTES])


def of_json(kind: bytes, value: Mapping[str, Any]) -> bytes:
    """Raises BadFrame for more than MAX_FRAME bytes; what is no JSON becomes text."""
    body = json.dumps(value, default=str).encode(errors="replace")
    if len(body) > MAX_FRAME:
        raise BadFrame(f"{len(body) >> 20} MB in one output")
    return encoded(kind, body)


def mapping(body: bytes) -> dict[str, Any]:
    """Raises BadFrame."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame("no JSON") from error
    if not isinstance(value, dict):
        raise BadFrame("no JSON object")
    return value


class Frames:
    """Bytes as they come, in any pieces; complete frames come out."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Raises BadFrame."""
        self._kept += data
        found, start = [], 0
        while len(self._kept) - start >= HEAD.size:
            kind, length = HEAD.unpack_from(self._kept, start)
            if length > MAX_FRAME:
                raise BadFrame(f"a frame of {length} bytes")
            end = start + HEAD.size + length
            if len(self._kept) < end:
                break
            found.append((kind, bytes(self._kept[start + HEAD.size : end])))
            start = end
        del self._kept[:start]
        return found


def write_all(fd: int, data: bytes) -> None:
    """Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_frame(fd: int) -> tuple[bytes, bytes] | None:
    """The next frame, None at the end. For the child, which waits for nothing else."""
    head = _exactly(fd, HEAD.size)
    if head is None:
        return None
    kind, length = HEAD.unpack(head)
    body = _exactly(fd, length)
    return None if body is None else (kind, body)


def _exactly(fd: int, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        data = os.read(fd, count - len(parts))
        if not data:
            return None
        parts += data
    return bytes(parts)
