"""Makes the headers of an HTTP response that contains a file, and parses the byte range that a client requests. The
functions have no side effects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from agent_kernel.core.files import File

SHOWN = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "text/plain", "text/csv", "application/json"}
    | {"audio/mpeg", "audio/wav", "audio/x-wav", "audio/ogg", "video/mp4", "video/webm"}
)
"""Types that a browser may display inline. All other files are downloads, because pages and some images can contain
scripts."""
POLICY = "sandbox; default-src 'none'; img-src 'self' data:; media-src 'self'; style-src 'unsafe-inline'"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A byte range; ``end`` is exclusive."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def span(header: str | None, size: int) -> ByteRange | None:
    """Return the range of a file of ``size`` bytes that a Range header requests; None if no byte of the file is in the
    range. Without a header, or if it is invalid or has several ranges, return the whole file."""
    match = _RANGE.fullmatch((header or "").replace(" ", ""))
    if match is None or not any(match.groups()):
        return ByteRange(0, size)
    first, last = match.groups()
    if not first:
        return ByteRange(max(0, size - int(last)), size) if size and int(last) else None
    start, end = int(first), min(size, int(last) + 1) if last else size
    if last and int(last) < start:
        return ByteRange(0, size)
    return ByteRange(start, end) if start < size else None


def headers(file: File) -> dict[str, str]:
    """Return response headers that keep a browser from running the file with the rights of this server's pages,
    whatever the type of the file."""
    text = "; charset=utf-8" if file.is_text else ""
    return {
        "Content-Type": file.mime + text,
        "Content-Disposition": disposition(file),
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "private, max-age=0, must-revalidate",
        "Accept-Ranges": "bytes",
        "ETag": f'"{file.hash}"',
    }


def disposition(file: File) -> str:
    """Return the Content-Disposition with the last part of the file's name, in ASCII and in the encoding of RFC
    5987."""
    kind = "inline" if file.mime in SHOWN else "attachment"
    name = file.name.replace("\\", "/").rpartition("/")[2] or "file"
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
