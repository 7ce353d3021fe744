"""Encodes and reads frames, which are JSON objects. The server and its model worker exchange them over pipes.

Only ``read_frames`` and ``open_pipes`` need a running event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias

from agent_kernel.core.errors import EngineCrashed
from agent_kernel.core.wire import framing

Frame: TypeAlias = dict[str, Any]

MAX_FRAME = 64 * 1024 * 1024
"""Largest frame in bytes. A longer one means that something other than agent-kernel has written into the pipe."""


def encode_frame(frame: Mapping[str, Any]) -> bytes:
    return framing.encode_frame(json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"))


async def read_frames(reader: asyncio.StreamReader) -> AsyncIterator[Frame]:
    """Yield each frame until end of file. A frame that the end of file cuts off is dropped. Raises EngineCrashed for
    bytes that are not a frame; the data in the pipe cannot be trusted from then on."""
    while True:
        try:
            frame = framing.parse_object(await framing.read_body_async(reader, MAX_FRAME))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except framing.FrameError as error:
            raise EngineCrashed(f"The model worker's pipe carries something that is not a frame: {error}.") from error
        yield frame


async def open_pipes(
    read_fd: int, write_fd: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.BaseTransport]:
    """Return a reader and a writer for two pipe ends, and the transport that closes the reading end. The streams own
    the pipe ends from then on.

    Works on POSIX systems only. On Windows, the same frames would need handles inherited by
    ``STARTUPINFO.lpAttributeList`` and one blocking thread per direction, because the selector loop, on which tornado
    runs, has no pipe transports on Windows.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(), os.fdopen(write_fd, "wb", buffering=0)
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop), reading
