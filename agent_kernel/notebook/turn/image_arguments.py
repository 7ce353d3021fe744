"""Reads the images and videos of the option ``--image``: files, bytes, or variables with a picture. Their content is
not decoded."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_kernel.notebook.kernel.one_line_errors import AgentError

MAX_BYTES = 20 * 2**20
"""Limit in bytes for all images of a turn together. The server has the same limit."""
MAX_PICTURES = 16
BEGINNINGS = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
    ("image/bmp", 0, b"BM"),
    ("image/tiff", 0, b"II*\x00"),
    ("image/tiff", 0, b"MM\x00*"),
    ("video/mp4", 4, b"ftyp"),
    ("video/webm", 0, b"\x1aE\xdf\xa3"),
    ("video/x-msvideo", 8, b"AVI "),
)
"""(MIME type, offset, magic bytes) of each supported format. File names are not trusted."""


def read_images(names: Iterable[str], namespace: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return ``{mime, data}`` entries for the body of a turn, with data in base64. Raises AgentError for content that
    is not a supported format, and for more than MAX_BYTES bytes in all."""
    media: list[dict[str, str]] = []
    total = 0
    for name in names:
        data = _bytes(name, namespace)
        total += len(data)
        if total > MAX_BYTES or len(media) == MAX_PICTURES:
            raise AgentError(
                f"a turn can have at most {MAX_PICTURES} pictures, with at most {MAX_BYTES >> 20} MiB in all."
            )
        media.append({"mime": _kind(name, data), "data": base64.b64encode(data).decode()})
    return media


def _bytes(name: str, namespace: Mapping[str, Any]) -> bytes:
    """Read the bytes of a variable or file. A variable takes precedence over a file of the same name."""
    value = namespace.get(name, name)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | Path):
        return _read(Path(value).expanduser())
    save = getattr(value, "savefig", None) or getattr(value, "save", None)
    module = type(value).__module__.partition(".")[0]
    if save is None or module not in ("PIL", "matplotlib"):
        raise AgentError(
            f"--image {name}: a {type(value).__name__} is not a picture; give a PIL image, a figure or bytes."
        )
    out = io.BytesIO()
    save(out, format="png")
    return out.getvalue()


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise AgentError(f"--image {path}: the file can have at most {MAX_BYTES >> 20} MiB.")
        return path.read_bytes()
    except OSError as error:
        raise AgentError(f"--image {path}: {error.strerror or error}, and there is no variable of that name.") from None


def _kind(name: str, data: bytes) -> str:
    for mime, at, beginning in BEGINNINGS:
        if data[at : at + len(beginning)] == beginning:
            return mime
    raise AgentError(f"--image {name}: this is not a PNG, JPEG, GIF, WebP, BMP or TIFF image nor an MP4 or WebM video.")
