"""Represents a file to upload with a turn, which a program gives as a path, bytes, an open file, a text, or a data
URL."""

from __future__ import annotations

import base64
import binascii
import io
import os
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from agent_kernel.core.errors import FileTooLarge, InvalidRequest
from agent_kernel.core.files import clean_name, format_of, mime_of

MAX_URL_BYTES = 64 << 20
"""Limit in bytes for the decoded content of a data URL. mistral.rs has the same limit."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file for a turn.

    ``source`` provides the bytes; they are read when the file is sent, and a path is streamed. An empty ``mime`` is
    derived from the name.
    """

    name: str
    source: Path | bytes | BinaryIO
    mime: str = ""

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], name: str = "", mime: str = "") -> InputFile:
        """Use the file at this path. Raises InvalidRequest if it does not exist."""
        expanded = Path(path).expanduser()
        if not expanded.is_file():
            raise InvalidRequest(f"There is no file {str(expanded)!r}.")
        return cls(clean_name(name or expanded.name), expanded, mime)

    @classmethod
    def from_bytes(cls, data: bytes, name: str, mime: str = "") -> InputFile:
        return cls(clean_name(name), bytes(data), mime)

    @classmethod
    def from_text(cls, text: str, name: str = "text.txt", mime: str = "") -> InputFile:
        return cls(clean_name(name), text.encode("utf-8", "surrogatepass"), mime)

    @classmethod
    def from_file(cls, file: BinaryIO, name: str = "", mime: str = "") -> InputFile:
        """Use an open binary file, read from its current position. It can be sent once and is not closed."""
        file_name = name or os.path.basename(str(getattr(file, "name", "")))
        return cls(clean_name(file_name or "file"), file, mime)

    @classmethod
    def from_url(cls, url: str, name: str = "", mime: str = "") -> InputFile:
        """Use a data URL: ``data:text/plain;base64,aGVsbG8=``. Raises InvalidRequest for other URLs; nothing is fetched
        here."""
        head, comma, data = url.partition(",")
        if not head.startswith("data:") or not comma:
            raise InvalidRequest(
                "Only data: URLs can be given as a file.", hint=("Download the file first, and give its path.")
            )
        if len(data) * 3 // 4 > MAX_URL_BYTES + 3:
            raise FileTooLarge(
                f"The content of a data URL can have at most {MAX_URL_BYTES >> 20} MiB.", hint="Give a path instead."
            )
        kind, *more = head.removeprefix("data:").split(";")
        try:
            if "base64" in more:
                body = base64.b64decode(urllib.parse.unquote_to_bytes(data), validate=True)
            else:
                body = urllib.parse.unquote_to_bytes(data)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"The data of this URL is not valid base64: {error}.") from None
        return cls(clean_name(name or "file"), body, mime or kind or "text/plain")

    @property
    def format(self) -> str:
        return format_of(self.name)

    @property
    def mime_type(self) -> str:
        return self.mime or mime_of(self.format)

    @property
    def size(self) -> int | None:
        """Size in bytes; None if it is known only after reading."""
        if isinstance(self.source, bytes):
            return len(self.source)
        if isinstance(self.source, Path):
            return self.source.stat().st_size
        return None

    def open(self) -> BinaryIO:
        """Open the content for reading. Blocking. The caller closes the result, except if ``borrowed`` is True."""
        if isinstance(self.source, Path):
            return self.source.open("rb")
        return io.BytesIO(self.source) if isinstance(self.source, bytes) else self.source

    @property
    def borrowed(self) -> bool:
        """Whether the source is a file object that belongs to the caller."""
        return not isinstance(self.source, Path | bytes)


Given: TypeAlias = InputFile | str | os.PathLike[str] | bytes | BinaryIO
"""The values that may be given as a file. A string is a path or a data URL."""


def input_file(source: Given) -> InputFile:
    """Convert a value to an InputFile. Raises InvalidRequest."""
    if isinstance(source, InputFile):
        return source
    if isinstance(source, bytes):
        return InputFile.from_bytes(source, "file")
    if isinstance(source, str) and source.startswith("data:"):
        return InputFile.from_url(source)
    if isinstance(source, str | os.PathLike):
        return InputFile.from_path(source)
    if callable(getattr(source, "read", None)):
        return InputFile.from_file(source)
    raise InvalidRequest(
        f"A {type(source).__name__} cannot be given as a file.",
        hint="Give a path, bytes, an open binary file, a data: URL or an InputFile.",
    )
