"""Decompresses responses in chunks of bounded size, so that the caller can count each chunk before the next one is
decompressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from agent_kernel.core.errors import FetchFailed

PIECE = 64 << 10
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def create_decompressor(encoding: str) -> Callable[[bytes], Iterator[bytes]]:
    """Return a decompressor for one response. It takes compressed bytes and yields chunks of at most PIECE bytes.

    Raises FetchFailed for an encoding that the request did not allow.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return lambda raw: iter((raw,))
    if name in ("gzip", "x-gzip", "deflate"):
        return Inflater(bare=name == "deflate")
    raise FetchFailed(f"The response has the encoding {name[:40]!r}, which was not requested.")


class Inflater:
    """Decompresses gzip, including files of several members, and deflate, with the zlib header that the standard
    requires or without it (``bare``)."""

    def __init__(self, *, bare: bool = False) -> None:
        self._bare = bare
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    def __call__(self, raw: bytes) -> Iterator[bytes]:
        while raw:
            try:
                piece = self._inflate.decompress(raw, PIECE)
            except zlib.error as error:
                if self._begun or not self._bare:
                    raise FetchFailed("The response is not compressed correctly.") from error
                self._inflate, self._begun = zlib.decompressobj(-zlib.MAX_WBITS), True
                continue
            self._begun = True
            raw = self._inflate.unconsumed_tail
            if self._inflate.eof:
                raw = self._inflate.unused_data
                self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
                self._begun = False
            if piece:
                yield piece
