"""Bytes of a file as an HTTP answer: its headers, and the part of it that was asked for. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from agent_kernel.core.files import File

SHOWN = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "text/plain", "text/csv", "application/json"}
    | {"audio/mpeg", "audio/wav", "audio/x-wav", "audio/ogg", "video/mp4", "video/webm"}
)
"""What a browser may show in its place. Anything else is a download: pages and pictures with scripts above all."""
POLICY = "sandbox; default-src 'none'; img-src 'self' data:; media-src 'self'; style-src 'unsafe-inline'"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class Span:
    """``end`` is behind the last byte."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def span(header: str | None, size: int) -> Span | None:
    """What a Range header asks for of ``size`` bytes; None: it can not be had. Without one, or with one that is several
    or no ranges of bytes, it is all."""
    asked = _RANGE.fullmatch((header or "").replace(" ", ""))
    if asked is None or not any(asked.groups()):
        return Span(0, size)
    first, last = asked.groups()
    if not first:
        return Span(max(0, size - int(last)), size) if size and int(last) else None
    start, end = int(first), min(size, int(last) + 1) if last else size
    if last and int(last) < start:
        return Span(0, size)
    return Span(start, end) if start < size else None


def headers(file: File) -> dict[str, str]:
    """Whatever a file says of itself, a browser does not run it in our origin."""
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
    """With the last part of its name, in ASCII and (RFC 5987) as it is."""
    kind = "inline" if file.mime in SHOWN else "attachment"
    name = file.name.replace("\\", "/").rpartition("/")[2] or "file"
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
