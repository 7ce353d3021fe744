"""Splits an animated PNG into its frames. Each frame becomes a PNG. Chunks are copied, and no image is decoded. The
functions have no side effects.

The frames must be complete images, as ``sandbox/worker/animations.py`` writes them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_FRAMES = 100
HEAD = struct.Struct(">I4s")
CONTROL = struct.Struct(">IIIII")
"""The layout of the first fields of an fcTL chunk: sequence number, width, height, x offset, y offset."""
SHARED = (b"IHDR", b"PLTE", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"pHYs")
"""Chunks before the first frame that every frame needs."""


def frames_of(png: bytes) -> list[bytes]:
    """Return each frame of an animated PNG as a PNG of its own. Return an empty list if the data is not a PNG, if the
    image is not animated, or if a frame covers only a part of the image."""
    if b"acTL" not in png[:256]:
        return []
    shared: list[bytes] = []
    frames: list[list[bytes]] = []
    size = b""
    for kind, body in _chunks(png):
        if kind == b"IHDR":
            size = body[:8]
        if kind in SHARED and not frames:
            shared.append(_chunk(kind, body))
        elif kind == b"fcTL":
            if len(frames) == MAX_FRAMES or len(body) < CONTROL.size or body[4:12] != size:
                return []
            frames.append([])
        elif kind in (b"IDAT", b"fdAT") and frames:
            frames[-1].append(_chunk(b"IDAT", body if kind == b"IDAT" else body[4:]))
    end = _chunk(b"IEND", b"")
    return [b"".join((SIGNATURE, *shared, *data, end)) for data in frames if data]


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at + 12 <= len(png):
        length, kind = HEAD.unpack_from(png, at)
        yield kind, png[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(kind: bytes, body: bytes) -> bytes:
    return HEAD.pack(len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
