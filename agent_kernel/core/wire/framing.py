"""Encodes and reads length-prefixed frames on pipes and sockets between our processes.

A frame is a kind (1 byte, in protocols that have kinds), a length (4 bytes, big-endian) and a body. Every reader has a
limit, and checks the length before it reads the body. Without this check, a wrong length would make it allocate
gigabytes or wait forever. This module uses the standard library only, because the sandbox and the draft import it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

LENGTH = struct.Struct(">I")
HEAD = struct.Struct(">cI")
"""The binary form of the header that precedes a body: a kind (1 byte) and a length (4 bytes, big-endian)."""


class FrameError(ValueError):
    """Raised for bytes that are not a valid frame of the protocol."""


def encode_head(length: int, kind: bytes = b"") -> bytes:
    """Return the bytes that precede a body of this length, so that a large body can be sent without copying it."""
    return kind + LENGTH.pack(length)


def encode_frame(body: bytes, kind: bytes = b"") -> bytes:
    return encode_head(len(body), kind) + body


def decode_head(head: bytes, limit: int, kind: bytes = b"") -> int:
    """Return the length of the body from the bytes that precede it. Raises FrameError if the frame is not of ``kind``,
    or if the body has more than ``limit`` bytes."""
    (length,) = LENGTH.unpack_from(head, len(kind))
    if not head.startswith(kind):
        raise FrameError(f"a frame of the unexpected kind {head[:1]!r}")
    return check_length(length, limit)


def check_length(length: int, limit: int) -> int:
    if length > limit:
        raise FrameError(f"a frame of {length} bytes; the limit is {limit}")
    return length


def read_body(read_into: Callable[[memoryview], int], limit: int, kind: bytes = b"") -> bytearray | None:
    """Wait for the next frame, which must be of ``kind``, and return its body; None at the end of the stream.

    ``read_into`` fills the start of a buffer and returns the number of bytes, as ``socket.recv_into`` does. If the
    stream ends within a frame, the frame is dropped and None is returned. Raises FrameError as ``decode_head`` does.
    """
    head = _read_exactly(read_into, len(kind) + LENGTH.size)
    return None if head is None else _read_exactly(read_into, decode_head(bytes(head), limit, kind))


def _read_exactly(read_into: Callable[[memoryview], int], size: int) -> bytearray | None:
    data = bytearray(size)
    view, count = memoryview(data), 0
    while count < size:
        received = read_into(view[count:])
        if not received:
            return None
        count += received
    return data


async def read_body_async(reader: asyncio.StreamReader, limit: int, kind: bytes = b"") -> bytes:
    """Wait for the next frame, which must be of ``kind``, and return its body. Raises FrameError as ``decode_head``
    does, and ``asyncio.IncompleteReadError`` at the end of the stream."""
    head = await reader.readexactly(len(kind) + LENGTH.size)
    return await reader.readexactly(decode_head(head, limit, kind))


class FrameDecoder:
    """Splits received bytes, in chunks of any size, into frames with kinds."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """Add received bytes, and return the frames that are complete now, as (kind, body). Raises FrameError for a
        body of more bytes than the limit."""
        self._buffer += chunk
        frames, start = [], 0
        while len(self._buffer) - start >= HEAD.size:
            kind, length = HEAD.unpack_from(self._buffer, start)
            body = start + HEAD.size
            end = body + check_length(length, self._limit)
            if len(self._buffer) < end:
                break
            frames.append((kind, bytes(self._buffer[body:end])))
            start = end
        del self._buffer[:start]
        return frames


def parse_object(body: bytes | bytearray) -> dict[str, Any]:
    """Parse a JSON object. Raises FrameError for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError("the frame is not JSON") from error
    if not isinstance(value, dict):
        raise FrameError("the frame is not a JSON object")
    return value
