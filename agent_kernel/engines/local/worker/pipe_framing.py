"""Frames between the server and its model worker: a 4-byte big-endian length, followed by that many bytes of JSON.

Encoding is pure; only ``read_frames`` and ``open_pipes`` need a running event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias

from agent_kernel.core.errors import EngineCrashed

Frame: TypeAlias = dict[str, Any]

MAX_FRAME = 64 * 1024 * 1024
"""Bytes. A longer frame is not one of ours: something else has written into the pipe."""
_LENGTH = struct.Struct(">I")


def encode_frame(frame: Mapping[str, Any]) -> bytes:
    body = json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return _LENGTH.pack(len(body)) + body


def decode_frame(body: bytes) -> Frame:
    """Parse a frame. Raises EngineCrashed for bytes that are not a JSON object: the pipe cannot be trusted from then
    on."""
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EngineCrashed("The model worker's pipe carries something that is not a frame.") from error
    if not isinstance(frame, dict):
        raise EngineCrashed("The model worker's pipe carries something that is not a frame.")
    return frame


async def read_frames(reader: asyncio.StreamReader) -> AsyncIterator[Frame]:
    """Yield every frame until end of file. A frame cut by the end of file is dropped."""
    while True:
        try:
            # readexactly waits for the whole length and then for the whole body, since a pipe delivers arbitrary
            # pieces.
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            # Checked before the body is read: a wrong length would otherwise allocate gigabytes or wait forever.
            if length > MAX_FRAME:
                raise EngineCrashed(f"A frame of {length} bytes on the model worker's pipe; the limit is {MAX_FRAME}.")
            body = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        yield decode_frame(body)


async def open_pipes(
    read_fd: int, write_fd: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.BaseTransport]:
    """Return streams over two pipe ends, which they own from then on, and the transport that closes the reading end.

    POSIX only. On Windows the same frames would travel over handles inherited by ``STARTUPINFO.lpAttributeList``,
    with one blocking thread per direction, because the selector loop (on which tornado runs) has no pipe transports
    there."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(), os.fdopen(write_fd, "wb", buffering=0)
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop), reading
