"""Describes files that a prompt names: the columns, types, three rows, categories and missing values of a table, the
keys and types of a JSON document, or the first lines of a text.

Opens only regular files below the working directory that a draft may read too. Reads at most HEAD_BYTES of a file, or
the whole file if it has no more than WHOLE_BYTES. Every line quoted from a file is indented, so that its content cannot
pass for a fact about the file. Uses the standard library, and for files that pandas reads by means of another library
also that library.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent_kernel.notebook.draft.jail import readable_paths
from agent_kernel.notebook.kernel.text_columns import describe_conversion, pandas_names
from agent_kernel.notebook.turn.column_types import (
    MISSING,
    column_type,
    describe_values,
    has_several_forms,
    number_options,
)

MAX_FILES = 3
MAX_ENTRIES = 2_000
HEAD_BYTES = 64 * 1024
WHOLE_BYTES = 1024 * 1024
"""Files of at most this many bytes are read whole. Only then are rows and lines counted and JSON is parsed."""
MAX_COLUMNS = 40
ROWS = 3
TYPED_ROWS = 200
"""Number of rows from which the type of a column is inferred. Rows after these are not examined."""
CELL = 60
LINE = 300
MAX_CHARS = 1_500
DEPTH = 3
"""Number of nesting levels of a JSON document that are described."""
NAMED = re.compile(
    r"""["'`]([^"'`\n]{1,200}\.[A-Za-z]\w{0,9})["'`]|(?<![\w./\\-])((?:\.?/)?\w(?:[\w./-]*\w)?\.[A-Za-z]\w{0,9})(?!\w)"""
)
DELIMITERS = ",;\t|"
TABLES = frozenset({"csv", "tsv"})
JSON_LINES = frozenset({"jsonl", "ndjson"})
TEXTS = frozenset({"txt", "log", "md", "dat", "rst", "yaml", "yml", "toml", "ini", "xml", "html"})
BY_PANDAS = {"parquet": "read_parquet", "xlsx": "read_excel", "xls": "read_excel"}
LINES = re.compile(r"\blines?\b|\brows?\b", re.IGNORECASE)
MAX_SKIPPED = 10
"""Maximum number of lines before the header of a table that are recognised as a title."""
MAX_WORKBOOK_BYTES = 32 << 20
"""Limit in bytes of the unpacked size of a workbook. Of a larger workbook, no rows are read."""


class FileHead(NamedTuple):
    """The beginning of a file as text. ``whole`` is True if the text is the whole file. ``size`` is the size of the
    file in bytes. ``encoding`` is "" for UTF-8."""

    text: str
    whole: bool
    size: int
    encoding: str = ""


def describe_files(prompt: str) -> str:
    """Describe existing files named in the prompt, at most MAX_FILES. Returns "" if the prompt names no file."""
    facts: list[str] = []
    for name in dict.fromkeys(quoted or plain for quoted, plain in NAMED.findall(prompt)):
        if len(facts) == MAX_FILES:
            break
        path = _readable_path(name)
        if path is not None and (fact := _describe(name, path, prompt)):
            facts.append(fact)
    return "\n".join(facts)


def complete_file(beginning: str) -> list[str]:
    """Return the files that a prompt can name and that begin with ``beginning``, a path below the working directory.

    Folders are included, with a slash at their end. At most MAX_ENTRIES entries of a folder are looked at."""
    folder, slash, name = beginning.rpartition("/")
    if beginning.startswith("/") or ".." in folder.split("/"):
        return []
    paths: list[str] = []
    try:
        with os.scandir(folder or ".") as entries:
            for entry in itertools.islice(entries, MAX_ENTRIES):
                path = f"{folder}{slash}{entry.name}"
                if not entry.name.startswith(name) or entry.name.startswith(".") or not entry.name.isprintable():
                    continue
                if os.path.isdir(path):  # entry.is_dir() raises an error for a link to itself
                    paths.append(f"{path}/")
                elif NAMED.fullmatch(path) and _readable_path(path) is not None:
                    paths.append(path)
    except (OSError, ValueError):  # the folder does not exist, or the text is not a path
        return []
    return sorted(paths)


def _readable_path(name: str) -> str | None:
    """Return the real path of ``name`` if it is a regular file below the working directory and a draft may read it;
    else None."""
    extension = _extension(name)
    if extension not in TABLES | JSON_LINES | TEXTS | {"json"} | BY_PANDAS.keys():
        return None
    try:
        workdir, path = os.path.realpath(os.getcwd()), os.path.realpath(name)
        if not stat.S_ISREG(os.stat(path).st_mode) or not path.startswith(workdir.rstrip("/") + "/"):
            return None
        allowed = [os.path.realpath(root) for root in readable_paths()]
    except (OSError, ValueError):
        return None
    if any(part.startswith(".") or ".agent." in part for part in Path(path).relative_to(workdir).parts):
        return None
    return path if any(path == root or path.startswith(root.rstrip("/") + "/") for root in allowed) else None


def _describe(name: str, path: str, prompt: str) -> str:
    """Describe one file in at most MAX_CHARS characters. Returns "" if it cannot be read."""
    extension = _extension(name)
    if extension in BY_PANDAS:
        return _describe_binary_table(name, path, extension)
    head = _head(path)
    if head is None:
        return ""
    conversions: list[str] = []
    if extension in TABLES:
        lines, conversions = _describe_table(name, head)
    else:
        lines = _describe_text(name, head, prompt, extension)
    quoted = [f"    {_cut(line, LINE)}" for line in lines[1:]]
    text = "\n".join([_cut(f"{name}: {lines[0]}", MAX_CHARS - ROWS * LINE // 2), *quoted, *conversions])
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ..."


def _describe_binary_table(name: str, path: str, extension: str) -> str:
    """Describe a workbook by its sheets and first rows, or a parquet file by its columns. The description is incomplete
    if a library that pandas needs for the file is not installed."""
    fact = f"{name}: table {_reads(f'pd.{BY_PANDAS[extension]}({name!r})')}, {os.path.getsize(path)} bytes"
    conversions: list[str] = []
    try:
        if extension == "parquet":
            first, rows = _parquet_columns(path), list[str]()
        elif extension == "xlsx":
            first, cells = _workbook_rows(path)
            texts = (["" if cell is None else _cut(str(cell)) for cell in row] for row in cells[: ROWS + 1])
            rows = [_one_line(",".join(row)) for row in texts]
            labels = cells[0] if cells else []
            conversions = _conversions(name, labels, [[row[at] for row in cells[1:]] for at in range(len(labels))])
        else:
            return fact
    except Exception:  # noqa: BLE001  a library may raise anything for a damaged file, and may be missing
        return fact
    return _cut("\n".join([fact + first, *(f"    {_cut(row, LINE)}" for row in rows), *conversions]), MAX_CHARS)


def _parquet_columns(path: str) -> str:
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    columns = ", ".join(f"{_cut(field.name)} {field.type}" for field in list(file.schema_arrow)[:MAX_COLUMNS])
    return _one_line(f", {file.metadata.num_rows} rows x {file.metadata.num_columns} columns: {columns}")


def _workbook_rows(path: str) -> tuple[str, list[list[Any]]]:
    """Return a text with the names of the sheets, and the cells of the first rows of the first sheet. The rows are not
    read if the unpacked size is above MAX_WORKBOOK_BYTES, which is possible even for a small file, because workbooks
    are compressed."""
    from openpyxl import load_workbook

    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > MAX_WORKBOOK_BYTES:
            return "", []
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        read = book.worksheets[0].iter_rows(max_row=TYPED_ROWS + 1, max_col=MAX_COLUMNS, values_only=True)
        rows = [list(row) for row in read]
        width = max((at + 1 for row in rows for at, cell in enumerate(row) if cell not in (None, "")), default=0)
        return _one_line(f", sheets: {', '.join(map(_cut, book.sheetnames))}"), [row[:width] for row in rows]
    finally:
        book.close()


def _conversions(name: str, columns: Sequence[Any], cells: Sequence[Sequence[Any]]) -> list[str]:
    """Describe the columns of a file that code must convert. The descriptions call the table by the file's stem, as the
    code does that reads the file. ``cells`` has the cells of each column."""
    table = re.sub(r"\W+", "_", Path(name).stem, flags=re.ASCII).strip("_").lower()
    if not table.isidentifier():
        return []
    # The cells keep the spaces at their ends, because these spaces are a reason for a conversion.
    present = [[cell for cell in column if cell is not None and str(cell).strip() not in MISSING] for column in cells]
    return [
        fact
        for label, column in zip(columns, present, strict=True)
        # A column needs no conversion if pandas converts it itself: if all texts are numbers, or all are true or false.
        if column_type([str(cell) for cell in column]) in ("str", "day first")
        and (fact := describe_conversion(table, label, column))
    ]


def _head(path: str) -> FileHead | None:
    """Read the start of a file. Returns None for binary content and for files that cannot be opened. Never blocks on
    a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return None
            data = file.read(WHOLE_BYTES + 1 if status.st_size <= WHOLE_BYTES else HEAD_BYTES)
    except OSError:
        return None
    if b"\0" in data:
        return None
    whole = len(data) >= status.st_size and len(data) <= WHOLE_BYTES
    if not whole:
        data = data[: data.rfind(b"\n") + 1] or data
    try:
        encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else ""
        return FileHead(data.decode(encoding or "utf-8"), whole, status.st_size, encoding)
    except UnicodeDecodeError:
        return FileHead(data.decode("latin-1"), whole, status.st_size, "latin-1")


def _describe_table(name: str, head: FileHead) -> tuple[list[str], list[str]]:
    """Return the lines that describe a table, and the lines that describe columns which code must convert."""
    lines = head.text.splitlines()
    separator = _separator(lines)
    try:
        reader = csv.reader(io.StringIO(head.text), delimiter=separator)
        numbered = [(reader.line_num, row) for row in reader if row]
    except csv.Error:
        return [f"text {_reads(_open_call(name, head) + '.read()')}, {head.size} bytes"], []
    if not numbered:
        return ["CSV, empty"], []
    skipped = _title_lines(numbered)
    rows = [row for line, row in numbered if line > skipped]
    columns = pandas_names(rows[0][:MAX_COLUMNS])
    read = rows[1:] if head.whole else rows[1 : 1 + TYPED_ROWS]
    complete = [[row[at] if at < len(row) else "" for row in read] for at in range(len(columns))]
    cells = [[row[at] for row in read[:TYPED_ROWS] if at < len(row)] for at in range(len(columns))]
    kinds = [column_type(column) for column in cells]
    options = [f"sep={separator!r}"] if separator != "," else []
    options += [f"skiprows={skipped}"] if skipped else []
    options += number_options(cells, kinds, separator)
    is_mixed = any(has_several_forms(column) for column, kind in zip(cells, kinds, strict=True) if kind == "date")
    dates = [column for column, kind in zip(columns, kinds, strict=True) if kind in ("date", "day first")]
    options += [f"parse_dates={dates!r}"] if dates else []
    options += ["dayfirst=True"] if "day first" in kinds else []
    # With both options, pandas would read 2024-05-01 as the fifth of January.
    options += ["date_format='mixed'"] if is_mixed and "day first" not in kinds else []
    options += [f"encoding={head.encoding!r}"] if head.encoding == "latin-1" else []
    count = f"{len(rows) - 1} rows x " if head.whole else ""
    more = f", and {len(rows[0]) - MAX_COLUMNS} more" if len(rows[0]) > MAX_COLUMNS else ""
    typed_columns = zip(columns, ("date" if kind == "day first" else kind for kind in kinds), strict=True)
    described = ", ".join(f"{_cut(column)} {kind}" for column, kind in typed_columns)
    first_lines = [separator.join(_cut(cell) for cell in row[:MAX_COLUMNS]) for row in rows[: ROWS + 1]]
    reads = _reads(f"pd.read_csv({', '.join([repr(name), *options])})")
    conversions = _conversions(
        name, columns, [column if kind == "str" else [] for column, kind in zip(cells, kinds, strict=True)]
    )
    first = f"CSV {reads}, {count}{len(rows[0])} columns: {described}{more}"
    # Only of a table that is read to its end are all values known.
    values = describe_values(columns, complete, kinds) if head.whole else []
    return [_one_line(first), *map(_one_line, [*first_lines, *values])], conversions


def _separator(lines: Sequence[str]) -> str:
    """Return the delimiter that occurs the same number of times in most lines; the comma if no delimiter does."""

    def regularity(mark: str) -> tuple[int, int]:
        counts = Counter(line.count(mark) for line in lines[:TYPED_ROWS] if mark in line)
        return max(((often, count) for count, often in counts.items()), default=(0, 0))

    return max(DELIMITERS, key=regularity)


def _title_lines(numbered: Sequence[tuple[int, list[str]]]) -> int:
    """Return the number of title lines before the header of a table. A title line has fewer cells than nearly all other
    rows."""
    widths = Counter(len(row) for _, row in numbered)
    width, often = widths.most_common(1)[0]
    at = next(at for at, (_, row) in enumerate(numbered) if len(row) >= width)
    if not 0 < at <= MAX_SKIPPED or width < 2 or often < len(numbered) - at - 1:
        return 0
    return numbered[at - 1][0]


def _describe_text(name: str, head: FileHead, prompt: str, extension: str) -> list[str]:
    """Describe JSON by its keys and types, and any other text by its first lines."""
    if extension in JSON_LINES:
        documents = [_parse_json(line) for line in head.text.splitlines()[:ROWS] if line.strip()]
        if documents and None not in documents:
            shape = _json_shape(documents[0], DEPTH)
            reads = _reads(f"pd.read_json({name!r}, lines=True)")
            return [_one_line(f"JSON lines {reads}, each {shape}"), *map(_one_line, head.text.splitlines()[:ROWS])]
    if extension == "json" and head.whole and (document := _parse_json(head.text)) is not None:
        return [_one_line(f"JSON {_reads(f'json.load({_open_call(name, head)})')}, {_json_shape(document, DEPTH)}")]
    if extension == "json":
        return [
            f"JSON {_reads(f'json.load({_open_call(name, head)})')}, {head.size} bytes",
            _one_line(head.text[:LINE]),
        ]
    lines = head.text.splitlines()
    count = f"{len(lines)} lines" if head.whole else f"{head.size} bytes"
    read = _open_call(name, head) + (".read().splitlines()" if LINES.search(prompt) else ".read()")
    return [f"text {_reads(read)}, {count}", *(_one_line(line) for line in lines[:ROWS])]


def _parse_json(text: str) -> Any:
    """Parse JSON. Returns None for invalid or too deeply nested text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_shape(value: Any, depth: int) -> str:
    """Describe a JSON value by keys and types, down to ``depth`` levels."""
    if isinstance(value, dict):
        if depth == 0:
            return f"object of {len(value)}"
        some = [f"{_cut(str(key))} {_json_shape(item, depth - 1)}" for key, item in list(value.items())[:MAX_COLUMNS]]
        return f"object {{{', '.join(some)}{', ...' if len(value) > len(some) else ''}}}"
    if isinstance(value, list):
        return f"list of {len(value)}" + (f", each {_json_shape(value[0], depth - 1)}" if value and depth else "")
    return "null" if value is None else type(value).__name__


def _open_call(name: str, head: FileHead) -> str:
    return f"open({name!r}, encoding={head.encoding!r})" if head.encoding else f"open({name!r})"


def _reads(expression: str) -> str:
    """Return the text that states the expression which reads a file. The code-fence protocol for small models copies
    the expression from the description, so its form must not change."""
    return f"read by {expression}"


def _extension(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\t" else " " for char in text)


def _cut(text: str, limit: int = CELL) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
