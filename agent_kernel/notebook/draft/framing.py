"""The framing between a kernel and its draft. Pure functions; the receiver must not trust what the draft sends.

A frame is a kind (1 byte), a length (4 bytes, big-endian) and a body: text or JSON.
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
"""FORKED: the draft has forked itself before a call. KEEPER: the keeper reports that a process started or ended."""
STREAMS = {OUT: "stdout", ERR: "stderr", VALUE: "value"}
OF_STREAM = {name: kind for kind, name in STREAMS.items()}
MAX_FRAME = 48 << 20
"""Limit in bytes of one frame, such as a picture or the result of a call. A longer frame ends the draft."""
TEXT_BYTES = 60_000


class BadFrame(ValueError):
    """Raised for bytes that are not a valid frame."""


def encode_frame(kind: bytes, body: bytes) -> bytes:
    return HEAD.pack(kind, len(body)) + body


def text_frames(stream: str, text: str) -> Iterator[bytes]:
    """Encode printed text as one or more frames."""
    raw = text.encode(errors="replace")
    for start in range(0, len(raw), TEXT_BYTES):
        yield encode_frame(OF_STREAM.get(stream, OUT), raw[start : start + TEXT_BYTES])


def json_frame(kind: bytes, value: Mapping[str, Any]) -> bytes:
    """Encode a JSON frame; values that JSON does not support become text. Raises BadFrame above MAX_FRAME bytes."""
    body = json.dumps(value, default=str).encode(errors="replace")
    if len(body) > MAX_FRAME:
        raise BadFrame(f"{len(body) >> 20} MB in one output")
    return encode_frame(kind, body)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises BadFrame."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame("no JSON") from error
    if not isinstance(value, dict):
        raise BadFrame("no JSON object")
    return value


class FrameReader:
    """Splits received bytes, in chunks of any size, into complete frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Add bytes and return the frames completed by them as (kind, body). Raises BadFrame."""
        self._buffer += data
        frames, start = [], 0
        while len(self._buffer) - start >= HEAD.size:
            kind, length = HEAD.unpack_from(self._buffer, start)
            if length > MAX_FRAME:
                raise BadFrame(f"a frame of {length} bytes")
            end = start + HEAD.size + length
            if len(self._buffer) < end:
                break
            frames.append((kind, bytes(self._buffer[start + HEAD.size : end])))
            start = end
        del self._buffer[:start]
        return frames


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_frame(fd: int) -> tuple[bytes, bytes] | None:
    """Read the next frame, or None at the end of the stream. Blocks; for the child, which waits for nothing else."""
    head = _read_exactly(fd, HEAD.size)
    if head is None:
        return None
    kind, length = HEAD.unpack(head)
    body = _read_exactly(fd, length)
    return None if body is None else (kind, body)


def _read_exactly(fd: int, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        data = os.read(fd, count - len(parts))
        if not data:
            return None
        parts += data
    return bytes(parts)
