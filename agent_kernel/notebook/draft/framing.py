"""The frames between a kernel and its draft: their kinds and bodies, which are text or JSON.

The kernel must not trust frames of the draft."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from agent_kernel.core.wire.framing import FrameError, encode_frame, read_body

OUT, ERR, VALUE, SHOW, READY, DONE, RUN = b"o", b"e", b"v", b"s", b"r", b"d", b"c"
FORKED, KEEPER = b"f", b"k"
"""FORKED: the draft has forked itself before a call. KEEPER: the keeper reports that a process started or ended."""
STREAMS = {OUT: "stdout", ERR: "stderr", VALUE: "value"}
OF_STREAM = {name: kind for kind, name in STREAMS.items()}
MAX_FRAME = 48 << 20
"""Limit in bytes of one frame, such as a picture or the result of a call. A longer frame ends the draft."""
TEXT_BYTES = 60_000


def text_frames(stream: str, text: str) -> Iterator[bytes]:
    """Encode printed text as one or more frames."""
    raw = text.encode(errors="replace")
    for start in range(0, len(raw), TEXT_BYTES):
        yield encode_frame(raw[start : start + TEXT_BYTES], OF_STREAM.get(stream, OUT))


def json_frame(kind: bytes, value: Mapping[str, Any]) -> bytes:
    """Encode a JSON frame; values that JSON does not support become text. Raises FrameError above MAX_FRAME bytes."""
    body = json.dumps(value, default=str).encode(errors="replace")
    if len(body) > MAX_FRAME:
        raise FrameError(f"{len(body) >> 20} MB in one output")
    return encode_frame(body, kind)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_request(fd: int) -> bytearray | None:
    """Return the body of the next RUN frame, or None at the end of the stream. This blocks, so only the child calls it,
    which waits for nothing else."""
    return read_body(lambda view: os.readv(fd, [view]), MAX_FRAME, RUN)
