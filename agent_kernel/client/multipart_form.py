"""Encodes a file as a form body in chunks, so that the whole file is never in memory."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping

from agent_kernel.client.input_file import InputFile

CHUNK = 1 << 18


class MultipartForm:
    """A form body of type ``multipart/form-data``: first the text fields ``fields``, then the file, in the field named
    ``field``. It can be sent once."""

    def __init__(self, fields: Mapping[str, str], file: InputFile, *, field: str = "file") -> None:
        self._boundary = secrets.token_hex(16)
        self._file = file
        heads = [self._part(f'name="{_quote(name)}"') + value.encode() + b"\r\n" for name, value in fields.items()]
        disposition = f'name="{field}"; filename="{_quote(file.name)}"'
        self._head = b"".join(heads) + self._part(disposition, file.mime_type)
        self._tail = f"\r\n--{self._boundary}--\r\n".encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers, with the length if it is known."""
        headers = {"Content-Type": f"multipart/form-data; boundary={self._boundary}"}
        size = self._file.size
        if size is not None:
            headers["Content-Length"] = str(len(self._head) + size + len(self._tail))
        return headers

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body. Raises OSError if the file cannot be read."""
        yield self._head
        source = await asyncio.to_thread(self._file.open)
        try:
            while chunk := await asyncio.to_thread(source.read, CHUNK):
                yield chunk
        finally:
            if not self._file.borrowed:
                source.close()
        yield self._tail

    def _part(self, disposition: str, mime: str = "") -> bytes:
        kind = f"Content-Type: {mime}\r\n" if mime else ""
        return f"--{self._boundary}\r\nContent-Disposition: form-data; {disposition}\r\n{kind}\r\n".encode()


def _quote(value: str) -> str:
    """Quote a name as RFC 7578 requires; a line break would end the header."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\r", " ").replace("\n", " ")
