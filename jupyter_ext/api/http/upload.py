"""Reads a file from a multipart/form-data body as it arrives, and writes its bytes to disk without holding all of it in
memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from agent_kernel.core.errors import FileTooLarge, InvalidRequest, StoreError
from agent_kernel.core.file_receiver import FileReceiver, ReceivedFile

OVERHEAD = 64 << 10
"""Maximum bytes of a request in addition to the bytes of its file."""
MAX_FIELD = 1_000
MAX_PARTS = 20
GATHERED = 1 << 20
"""Number of bytes that are collected before a thread parses and writes them."""


@dataclass(slots=True)
class UploadPart:
    name: str
    filename: str | None
    mime: str
    value: bytearray = field(default_factory=bytearray)


class Upload:
    """Parses a multipart upload piece by piece and writes the bytes of its file to a target.

    Blocking; used by one thread at a time. ``begin`` opens the target of the file's bytes. The first error is
    stored in ``problem`` and the rest of the body is read and dropped, so that the client gets the error in the
    response.
    """

    def __init__(
        self, content_type: str, begin: Callable[[], FileReceiver], needs: Sequence[str] = ("file", "purpose")
    ) -> None:
        kind, options = parse_options_header(content_type)
        self.problem: Exception | None = None
        self.filename = ""
        self.mime = ""
        self.fields: dict[str, str] = {}
        self.arrived: ReceivedFile | None = None
        self._begin = begin
        self._needs = needs
        self._incoming: FileReceiver | None = None
        self._part: UploadPart | None = None
        self._parts = 0
        self._header = (bytearray(), bytearray())
        self._headers: dict[str, str] = {}
        self._ended = False
        if kind != b"multipart/form-data" or b"boundary" not in options:
            self.problem = InvalidRequest("An upload must be multipart/form-data with the fields file and purpose.")
            return
        try:
            self._parser = MultipartParser(options[b"boundary"], self._callbacks())  # type: ignore[arg-type]
        except FormParserError as error:
            self.problem = InvalidRequest(f"The body is not valid multipart/form-data: {error}.")

    def feed(self, data: bytes) -> None:
        if self.problem is not None:
            return
        try:
            self._parser.write(data)
        except (InvalidRequest, StoreError) as error:
            self.problem = error
        except FormParserError as error:
            self.problem = InvalidRequest(f"The body is not valid multipart/form-data: {error}.")

    def finish(self) -> ReceivedFile:
        """Return the uploaded file. Raises InvalidRequest, FileTooLarge, StoreError."""
        if self.problem is not None:
            raise self.problem
        if not self._ended:
            raise InvalidRequest("The upload ended before its last part.", hint="Send it again.")
        missing = [name for name in self._needs if name not in self.fields and (name != "file" or not self.arrived)]
        if missing or self.arrived is None:
            raise InvalidRequest(f"The upload lacks the field {missing[0]}.")
        return self.arrived

    def close(self) -> None:
        """Delete the uploaded file, unless ``finish`` has returned it to the caller."""
        if self._incoming is not None:
            self._incoming.close()
        if self.arrived is not None:
            self.arrived.remove()

    # ------------------------------------------------------------------------------------------ callbacks of the parser

    def _callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            "on_part_begin": self._part_begins,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._part_ends,
            "on_end": self._end_upload,
        }

    def _part_begins(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise InvalidRequest(f"An upload can have at most {MAX_PARTS} parts.")
        self._headers = {}

    def _header_ends(self) -> None:
        name, value = (bytes(piece).decode("latin-1") for piece in self._header)
        self._headers[name.lower()] = value
        self._header = (bytearray(), bytearray())

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", ""))
        filename = options.get(b"filename")
        part = UploadPart(
            options.get(b"name", b"").decode("utf-8", "replace"),
            None if filename is None else filename.decode("utf-8", "replace"),
            parse_options_header(self._headers.get("content-type", ""))[0].decode("latin-1"),
        )
        self._part = part
        if part.name == "file":
            if self._incoming is not None:
                raise InvalidRequest("An upload must have exactly one file.")
            self.filename = (part.filename or "file").replace("\\", "/").rpartition("/")[2] or "file"
            self.mime = part.mime
            self._incoming = self._begin()

    def _data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        assert part is not None, "data come behind headers"
        if part.name == "file" and self._incoming is not None:
            self._incoming.write(data[start:end])
            return
        part.value.extend(data[start:end])
        if len(part.value) > MAX_FIELD:
            raise FileTooLarge(f"Each field other than the file can have at most {MAX_FIELD} bytes.")

    def _part_ends(self) -> None:
        part = self._part
        assert part is not None, "its headers came first"
        if part.name == "file" and self._incoming is not None:
            self.arrived = self._incoming.finish()
        else:
            self.fields[part.name] = part.value.decode("utf-8", "replace")

    def _end_upload(self) -> None:
        self._ended = True
