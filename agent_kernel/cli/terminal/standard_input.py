"""Finds out whether a user gave data on standard input, and which kind of file the data are.

A terminal and the null device give none. A redirected file does, unless another program has read the beginning of it,
as the loop ``while read line; do ...; done < FILE`` has. A pipe does if it gives a first byte within PIPE_WAIT_S: a
pipe that a job scheduler, ssh or another program leaves open and never writes to must not block the command.
"""

from __future__ import annotations

import csv
import json
import os
import re
import selectors
import stat
import sys
import tempfile
from dataclasses import dataclass
from io import BufferedReader
from typing import IO, cast

from agent_kernel.core.file_facts.delimited_text import separator_of

PIPE_WAIT_S = 3.0
CHUNK = 1 << 20
SNIFFED_BYTES = 64 << 10
SNIFFED_LINES = 20
MAGIC = {b"PAR1": "parquet", b"%PDF-": "pdf", b"\x89PNG": "png", b"\xff\xd8\xff": "jpg"}
JSON_BEGINNING = re.compile(r'\s*[{[]\s*["{[\]}\d-]')
NO_DATA = (
    f"standard input is open, but gave no data in {PIPE_WAIT_S:g} seconds, so the question goes without it. "
    "To wait for the data, add -f -; to leave it out, add < /dev/null."
)


def find_piped_data(wait_s: float = PIPE_WAIT_S) -> bool | None:
    """Return whether standard input has data. Return None for a pipe that stays open without data; this takes
    ``wait_s`` seconds."""
    try:
        status = os.fstat(sys.stdin.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size > 0 and os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR) == 0
        if not (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)) or sys.platform == "win32":
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(sys.stdin, selectors.EVENT_READ)
            if not selector.select(wait_s):
                return None
        return bool(_buffer().peek(1))
    except (OSError, ValueError):  # a test or a program has replaced the stream
        return False


@dataclass(frozen=True, slots=True)
class PipedData:
    """The data of standard input. ``name`` is the name of a file whose extension says how code reads them."""

    name: str
    body: IO[bytes]


def read_stdin(limit: int) -> PipedData:
    """Read standard input to its end, but at most ``limit`` bytes and one more, which shows that there are too many.
    This runs in the main thread, where Ctrl-C ends it. Large data are kept in a temporary file. Raises OSError."""
    body = tempfile.SpooledTemporaryFile(max_size=CHUNK)  # noqa: SIM115  the caller closes it
    left = limit + 1
    while left > 0 and (chunk := _buffer().read1(min(CHUNK, left))):
        body.write(chunk)
        left -= len(chunk)
    body.seek(0)
    name = f"stdin.{_extension(body.read(SNIFFED_BYTES))}"
    body.seek(0)
    return PipedData(name, body)


def _buffer() -> BufferedReader:
    return cast(BufferedReader, sys.stdin.buffer)


def _extension(beginning: bytes) -> str:
    for magic, extension in MAGIC.items():
        if beginning.startswith(magic):
            return extension
    if beginning.startswith(b"PK\x03\x04"):
        return "xlsx" if b"xl/" in beginning else "docx" if b"word/" in beginning else "zip"
    text = beginning.decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    if len(beginning) >= SNIFFED_BYTES and len(lines) > 1:
        lines.pop()  # it may be incomplete
    lines = lines[:SNIFFED_LINES]
    if len(lines) > 1 and all(map(_is_object, lines)):
        return "jsonl"
    if JSON_BEGINNING.match(text):
        return "json"
    separator = separator_of(lines)
    if not _is_table(lines, separator):
        return "txt"
    return "tsv" if separator == "\t" else "csv"


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_table(lines: list[str], delimiter: str) -> bool:
    """Return whether all rows have the same number of cells, at least two. Two lines with ``", "`` may be prose."""
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return False
    widths = {len(row) for row in rows}
    is_prose = len(rows) < 3 and any(f"{delimiter} " in line for line in lines)
    return len(rows) > 1 and len(widths) == 1 and widths != {1} and not is_prose
