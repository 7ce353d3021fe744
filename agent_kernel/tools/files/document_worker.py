"""A program that extracts the text of a document: it reads the file from standard input and writes the text to standard
output.

    python -I document_worker.py FORMAT CHARACTERS < FILE

It runs as a separate process with limits, because somebody may have written a file that exploits a parser. It uses only
the standard library and the library that reads the format, which it imports when needed. Exit codes: 0; 3 with a line
on standard error that states what is wrong; 4 with the name of the library that is not installed.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO

if sys.platform != "win32":
    import resource

MAX_CHARS = 5_000_000
"""Maximum number of characters of a text, unless the caller wants fewer."""
MEMORY = 2 << 30
CPU_S = 60
UNPACKED = 512 << 20
ENTRIES = 10_000
RATIO = 200
"""Maximum factor by which a part of a document may grow when it is unpacked. A part that exceeds both this factor and
16 MiB is refused as a decompression bomb."""
ROWS = 100
"""Maximum number of rows that are read of a columnar table."""
BROKEN, MISSING = 3, 4


class UnreadableDocument(Exception):
    """Raised if the document cannot be read; the message says why."""


def pdf(file: BinaryIO) -> Iterator[str]:
    from pypdf import PdfReader

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnreadableDocument("it is locked with a password")
    for number, page in enumerate(reader.pages, start=1):
        yield f"[page {number} of {len(reader.pages)}]\n{page.extract_text().strip()}\n\n"


def xlsx(file: BinaryIO) -> Iterator[str]:
    from openpyxl import load_workbook

    _no_bomb(file)
    book = load_workbook(file, read_only=True, data_only=True)
    if len(book.worksheets) > 1:
        yield f"[sheets: {', '.join(sheet.title for sheet in book.worksheets)}]\n"
    for sheet in book.worksheets:
        yield f"[sheet {sheet.title}]\n"
        for row in sheet.iter_rows(values_only=True):
            cells = ["" if value is None else " ".join(str(value).splitlines()).replace("\t", " ") for value in row]
            while cells and not cells[-1]:
                cells.pop()
            yield "\t".join(cells) + "\n"
        yield "\n"


def docx(file: BinaryIO) -> Iterator[str]:
    import docx as library
    from docx.table import Table

    _no_bomb(file)
    for block in library.Document(file).iter_inner_content():
        if isinstance(block, Table):
            for row in block.rows:
                yield "\t".join(cell.text.replace("\n", " ") for cell in row.cells) + "\n"
            yield "\n"
        else:
            style = (block.style.name if block.style is not None else None) or ""
            level = style.removeprefix("Heading ") if style.startswith("Heading ") else ""
            yield f"{'#' * int(level)} {block.text}\n" if level.isdecimal() else f"{block.text}\n"


def ipynb(file: BinaryIO) -> Iterator[str]:
    import nbformat

    book = nbformat.read(file, as_version=4)
    for number, cell in enumerate(book.cells, start=1):
        yield f"[cell {number}, {cell.cell_type}]\n{cell.source}\n"
        for output in cell.get("outputs", []):
            yield _output_text(output)
        yield "\n"


def parquet(file: BinaryIO) -> Iterator[str]:
    # Arrow's default allocator reserves 1 GiB of addresses, and each thread of OpenBLAS and of Arrow's readahead more
    # than 100 MiB. On a machine with many cores this alone exceeds ``MEMORY``, and Arrow then aborts the process.
    os.environ |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
    import pyarrow.parquet as library

    table = library.ParquetFile(file, pre_buffer=False)
    columns = ", ".join(f"{field.name} {field.type}" for field in table.schema_arrow)
    size = f"{table.metadata.num_rows} rows x {table.metadata.num_columns} columns"
    yield f"[{' '.join(f'{size}: {columns}'.splitlines())}]\n"
    for batch in table.iter_batches(ROWS, use_threads=False):
        for row in batch.to_pylist()[:ROWS]:
            yield "\t".join(str(value) for value in row.values()) + "\n"
        return


READERS: Mapping[str, Callable[[BinaryIO], Iterator[str]]] = MappingProxyType(
    {"pdf": pdf, "xlsx": xlsx, "xlsm": xlsx, "docx": docx, "ipynb": ipynb, "parquet": parquet}
)


def main(format: str, max_chars: int = MAX_CHARS) -> int:
    _limit()
    chars_left = max_chars
    try:
        for piece in READERS[format](sys.stdin.buffer):
            sys.stdout.buffer.write(piece[:chars_left].encode("utf-8", "replace"))
            chars_left -= len(piece)
            if chars_left <= 0:
                sys.stdout.buffer.write(f"\n[cut off after {max_chars:,} characters]".encode())
                break
        sys.stdout.buffer.flush()
    except ImportError as error:
        return _fail(error.name or str(error), MISSING)
    except MemoryError:
        return _fail("it needs more memory than a document may", BROKEN)
    except Exception as error:  # noqa: BLE001  a parser may raise anything for a broken document
        return _fail(f"{type(error).__name__}: {error}", BROKEN)
    return 0


def _fail(reason: str, code: int) -> int:
    """Write ``reason`` to standard error and return ``code``. Nothing may be written to standard error after this line:
    parsers write to it too, so the caller reads only the last line."""
    line = " ".join(reason.split())[:500]
    sys.stderr.buffer.write(f"\n{line}".encode("utf-8", "replace"))
    return code


def _limit() -> None:
    """Limit the memory, the CPU time, the file size and the number of open files of this process where the system
    supports this."""
    sys.setrecursionlimit(2000)
    if sys.platform == "win32":
        return
    for what, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most, most) if hard == resource.RLIM_INFINITY else (min(most, hard), min(most, hard)))


def _no_bomb(file: BinaryIO) -> None:
    with zipfile.ZipFile(file) as parts:
        entries = parts.infolist()
        bombs = [part for part in entries if part.file_size > 16 << 20 and part.file_size > RATIO * part.compress_size]
        if len(entries) > ENTRIES or sum(part.file_size for part in entries) > UNPACKED or bombs:
            raise UnreadableDocument("it expands to more data than is allowed for its size")
    file.seek(0)


def _output_text(output: Any) -> str:
    """Return the text of a cell's output; for images and HTML, only their type."""
    if output.output_type == "stream":
        return f"[output]\n{output.text}\n"
    if output.output_type == "error":
        return f"[error]\n{output.ename}: {output.evalue}\n"
    text = output.data.get("text/plain")
    return f"[output]\n{text}\n" if text else f"[output: {', '.join(output.data)}]\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
