"""Describes the beginning of a file of text: the columns, types, three rows, categories and missing values of a table,
the keys and types of a JSON document, or the first lines of a text.

Every line quoted from a file is indented, so that its content cannot pass for a fact about the file. Standard library
only: a kernel describes the files that a prompt names, and the server the files that go with a message.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent_kernel.core.file_facts.column_types import (
    MISSING,
    TYPED_ROWS,
    column_type,
    describe_values,
    has_several_forms,
    number_options,
)
from agent_kernel.core.file_facts.computed_columns import describe_amount, describe_duration
from agent_kernel.core.file_facts.delimited_text import is_delimited, separator_of, title_lines
from agent_kernel.core.file_facts.json_table import JsonTable, json_lines_table, json_table
from agent_kernel.core.file_facts.log_lines import log_table
from agent_kernel.core.file_facts.quoted_text import one_line, shorten
from agent_kernel.core.file_facts.table_keys import KeyColumns, key_columns, table_name
from agent_kernel.core.file_facts.text_columns import describe_conversion, pandas_names
from agent_kernel.core.file_facts.wide_table import describe_wide_table

HEAD_BYTES = 64 * 1024
WHOLE_BYTES = 1024 * 1024
"""Files of at most this many bytes are read whole. Only then are rows and lines counted and JSON is parsed."""
MAX_COLUMNS = 40
ROWS = 3
LINE = 300
MAX_CHARS = 1_500
DEPTH = 3
"""Number of nesting levels of a JSON document that are described."""
NUMBERS = frozenset({"int64", "float64"})
TABLES = frozenset({"csv", "tsv"})
JSON_LINES = frozenset({"jsonl", "ndjson"})
TEXTS = frozenset({"txt", "log", "md", "dat", "rst", "yaml", "yml", "toml", "ini", "xml", "html"})
STRUCTURE = re.compile(r"\b(?:lists?|dict(?:s|ionar(?:y|ies))?|objects?|keys?|nested|json\.load)\b", re.IGNORECASE)
"""Finds a question about the structure of a JSON document, which a table does not have."""
LINES_OF_TABLES = frozenset({"txt", "dat"})
"""Extensions of texts whose lines may be the rows of a table."""
LOGS = frozenset({"log", "txt", "out"})
LINES = re.compile(r"\blines?\b|\brows?\b", re.IGNORECASE)
ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
COMPARES_NEIGHBOURS = re.compile(
    r"\b(?:rolling|moving|running|cumulat\w*|consecutive|previous|before|after|between|since|gaps?|changes?|changed"
    r"|differ\w*|grow\w*|increas\w*|decreas\w*|rose|fell|fall|drop\w*|streak|row|lag|next|gleitend\w*|vorher\w*|zwischen)\b",
    re.IGNORECASE,
)
"""Finds words of a question for which rows may be compared with the rows before them."""


class FileHead(NamedTuple):
    """The beginning of a file as text. ``whole`` is True if the text is the whole file. ``size`` is the size of the
    file in bytes. ``encoding`` is "" for UTF-8."""

    text: str
    whole: bool
    size: int
    encoding: str = ""


class FileFacts(NamedTuple):
    """What the beginning of a file tells. ``contents`` says how code reads the file, and names the columns, keys or
    number of lines; it is empty if there is nothing to read. ``values`` are lines with the categories and the missing
    values of a table, and ``conversions`` describe the columns that code must convert. ``keys`` has, for each
    table of the file, the columns by which it may belong to another one."""

    format: str
    contents: str
    first_lines: Sequence[str] = ()
    values: Sequence[str] = ()
    conversions: Sequence[str] = ()
    keys: Sequence[KeyColumns] = ()


def describe_file(name: str, facts: FileFacts) -> str:
    """Describe a file in at most MAX_CHARS characters."""
    first = f"{name}: {facts.format} {facts.contents}".rstrip()
    return _join(first, [*facts.first_lines, *facts.values], facts.conversions)


def join_contents(facts: FileFacts) -> str:
    """Return the facts about a file without its name and format, in at most MAX_CHARS characters."""
    return _join(facts.contents, [*facts.first_lines, *facts.values], facts.conversions) if facts.contents else ""


def text_file_facts(name: str, head: FileHead, prompt: str = "") -> FileFacts:
    """Return the facts about a file with the beginning ``head``. ``name`` is the name by which code opens it; its
    extension says which format it has. ``prompt`` is the question about it."""
    extension = extension_of(name)
    is_table = extension in TABLES or (
        extension in LINES_OF_TABLES and is_delimited(head.text) and not LINES.search(prompt)
    )
    return _table_facts(name, head, prompt) if is_table else _text_facts(name, head, prompt, extension)


def _join(first: str, quoted: Sequence[str], conversions: Sequence[str]) -> str:
    """Return the lines of a description. Lines that quote the file are indented."""
    indented = [f"    {shorten(line, LINE)}" for line in quoted]
    text = "\n".join([shorten(first, MAX_CHARS - ROWS * LINE // 2), *indented, *conversions])
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ..."


def read_head(path: str) -> FileHead | None:
    """Read the start of a file. Returns None for binary content and for files that cannot be opened. Never blocks on
    a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return None
            return head_of(file.read(bytes_to_read(status.st_size)), status.st_size)
    except OSError:
        return None


def bytes_to_read(size: int) -> int:
    """Return how many bytes of a file with ``size`` bytes are examined."""
    return WHOLE_BYTES + 1 if size <= WHOLE_BYTES else HEAD_BYTES


def head_of(data: bytes, size: int) -> FileHead | None:
    """Return the text of ``data``, the beginning of a file with ``size`` bytes; None for binary content."""
    if b"\0" in data:
        return None
    whole = len(data) >= size and len(data) <= WHOLE_BYTES
    if not whole:
        data = data[: data.rfind(b"\n") + 1] or data
    try:
        encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else ""
        return FileHead(data.decode(encoding or "utf-8"), whole, size, encoding)
    except UnicodeDecodeError:
        return FileHead(data.decode("latin-1"), whole, size, "latin-1")


def _table_facts(name: str, head: FileHead, prompt: str) -> FileFacts:
    separator = separator_of(head.text.splitlines())
    try:
        reader = csv.reader(io.StringIO(head.text), delimiter=separator)
        numbered = [(reader.line_num, row) for row in reader if row]
    except csv.Error:
        return FileFacts("text", f"{reads_by(_open_call(name, head) + '.read()')}, {head.size} bytes")
    if not numbered:
        return FileFacts("CSV, empty", "")
    skipped = title_lines(numbered)
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
    described = ", ".join(f"{shorten(column)} {kind}" for column, kind in typed_columns)
    first_lines = [separator.join(shorten(cell) for cell in row[:MAX_COLUMNS]) for row in rows[: ROWS + 1]]
    reads = reads_by(f"pd.read_csv({', '.join([repr(name), *options])})")
    conversions = conversions_of(
        name, columns, [column if kind == "str" else [] for column, kind in zip(cells, kinds, strict=True)]
    )
    numbers = [label for label, kind in zip(columns, kinds, strict=True) if kind in NUMBERS]
    conversions += [*computed_columns_of(name, numbers, dates), *periods_of(name, columns, numbers)]
    # A small model sorts by dates also where the question asks for another order, if it is told of them.
    may_sort = head.whole and COMPARES_NEIGHBOURS.search(prompt)
    days = {label: column for label, column, kind in zip(columns, complete, kinds, strict=True) if kind == "date"}
    if may_sort and len(days) == 1:
        conversions += _sorting_of(name, *days.popitem())
    contents = one_line(f"{reads}, {count}{len(rows[0])} columns: {described}{more}")
    # Only of a table that is read to its end are all values known.
    values = describe_values(columns, complete, kinds) if head.whole else []
    keys = key_columns(name, columns, complete, kinds) if head.whole else []
    return FileFacts("CSV", contents, [*map(one_line, first_lines)], [*map(one_line, values)], conversions, keys)


def _sorting_of(name: str, label: str, days: Sequence[str]) -> list[str]:
    """Return the line that says how code sorts the rows of a file by its dates, if they are not sorted by them. The
    code-fence protocol for small models copies the statement."""
    table = table_name(name)
    if not table or not all(map(ISO_DATE.match, days)) or list(days) == sorted(days):
        return []
    line = f"{table} = {table}.sort_values({label!r}, ignore_index=True)"
    return [f"{table} is not in the order of {label!r}. Only if rows are compared with the rows before them: {line}"]


def _text_facts(name: str, head: FileHead, prompt: str, extension: str) -> FileFacts:
    """Return the columns of JSON and logs that are tables, the keys and types of other JSON, or the first lines of any
    other text."""
    first_lines = [one_line(line) for line in head.text.splitlines()[:ROWS]]
    if extension in JSON_LINES:
        documents = [_parse_json(line) for line in head.text.splitlines() if line.strip()]
        if documents and None not in documents:
            if not STRUCTURE.search(prompt) and (table := json_lines_table(name, documents)):
                return _json_table_facts("JSON lines", name, table.before + table.after, table, whole=head.whole)
            shape = _json_shape(documents[0], DEPTH)
            reads = reads_by(f"pd.read_json({name!r}, lines=True)")
            return FileFacts("JSON lines", one_line(f"{reads}, each {shape}"), first_lines)
    if extension == "json":
        reads = reads_by(f"json.load({_open_call(name, head)})")
        if head.whole and (document := _parse_json(head.text)) is not None:
            if not STRUCTURE.search(prompt) and (table := json_table(document)):
                reads = f"{table.before}json.load({_open_call(name, head)}){table.after}"
                return _json_table_facts("JSON", name, reads, table, whole=True)
            return FileFacts("JSON", one_line(f"{reads}, {_json_shape(document, DEPTH)}"))
        return FileFacts("JSON", f"{reads}, {head.size} bytes", [one_line(head.text[:LINE])])
    if not LINES.search(prompt) and (facts := log_facts(name, head)):
        return facts._replace(first_lines=first_lines)
    count = f"{len(head.text.splitlines())} lines" if head.whole else f"{head.size} bytes"
    read = _open_call(name, head) + (".read().splitlines()" if LINES.search(prompt) else ".read()")
    return FileFacts("text", f"{reads_by(read)}, {count}", first_lines)


def log_facts(name: str, head: FileHead) -> FileFacts | None:
    """Return the columns of a log whose lines have a common form; None for other files."""
    extension = extension_of(name)
    table = log_table(head.text, whole=head.whole) if extension in LOGS else None
    if table is None or (extension != "log" and "time" not in table.cells):
        return None
    pattern = repr(table.pattern).replace("\\\\", "\\")  # a raw string has one backslash where repr has two
    rows = f"pd.Series({_open_call(name, head)}.read().splitlines()).str.extract(r{pattern})"
    rows += ".dropna(how='all')" if table.has_other_lines or not head.whole else ""
    rows += f".astype({dict(table.types)!r})" if table.types else ""
    kinds = {column: "date" if kind.startswith("date") else kind.lower() for column, kind in table.types.items()}
    described = ", ".join(f"{column} {kinds.get(column, 'str')}" for column in table.cells)
    count = f"{len(next(iter(table.cells.values())))} rows x " if head.whole else ""
    columns = list(table.cells)
    cells = [table.cells[column] for column in columns]
    values = describe_values(columns, cells, [kinds.get(column, "str") for column in columns]) if head.whole else []
    frame = table_name(name)
    conversions = [
        f"{frame}[{column!r}] holds text. Convert it first: {conversion.format(f'{frame}[{column!r}]')}"
        for column, conversion in table.conversions.items()
    ]
    contents = one_line(f"{reads_by(rows)}, {count}{len(columns)} columns: {described}")
    return FileFacts("log", contents, [], [*map(one_line, values)], conversions if frame else [])


def _json_table_facts(form: str, name: str, reads: str, table: JsonTable, *, whole: bool) -> FileFacts:
    """Return the columns, the first rows and the values of a JSON document that holds the rows of a table. ``reads`` is
    the expression that reads it. ``whole`` is False if the file has more rows."""
    columns, kinds = list(table.cells), list(table.kinds.values())
    cells = [["" if cell is None else str(cell) for cell in column] for column in table.cells.values()]
    described = ", ".join(f"{shorten(column)} {kind}" for column, kind in zip(columns, kinds, strict=True))
    first_rows = list(zip(*cells, strict=True))[:ROWS]
    first_lines = [one_line(",".join(map(shorten, row))) for row in [columns, *first_rows]]
    values = [one_line(line) for line in describe_values(columns, cells, kinds)] if whole else []
    frame = table_name(name)
    lists = [column for column, kind in table.kinds.items() if kind == "list" and frame]
    conversions = [f"{frame}[{column!r}] has a list in each row. {_explode(frame, column, table)}" for column in lists]
    numbers = [column for column, kind in table.kinds.items() if kind in NUMBERS]
    texts = [list(table.cells[column]) if kind == "str" else [] for column, kind in table.kinds.items()]
    conversions += [*conversions_of(name, columns, texts), *computed_columns_of(name, numbers)]
    count = f"{len(cells[0])} rows x " if whole else ""
    contents = f"{reads_by(reads)}, {count}{len(columns)} columns: {described}"
    return FileFacts(form, one_line(contents), first_lines, values, conversions)


def _explode(frame: str, column: str, table: JsonTable) -> str:
    """Return the sentence that says how code gets one row for each element of a column of lists."""
    items = [item for cell in table.cells[column] for item in cell or ()]
    is_number = bool(items) and all(isinstance(item, int | float) for item in items)
    converted = f".astype({{{column!r}: float}})" if is_number else ""
    return f"One row for each element: {frame}_rows = {frame}.explode({column!r}){converted}"


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
        some = [
            f"{shorten(str(key))} {_json_shape(item, depth - 1)}" for key, item in list(value.items())[:MAX_COLUMNS]
        ]
        return f"object {{{', '.join(some)}{', ...' if len(value) > len(some) else ''}}}"
    if isinstance(value, list):
        return f"list of {len(value)}" + (f", each {_json_shape(value[0], depth - 1)}" if value and depth else "")
    return "null" if value is None else type(value).__name__


def _open_call(name: str, head: FileHead) -> str:
    return f"open({name!r}, encoding={head.encoding!r})" if head.encoding else f"open({name!r})"


def conversions_of(name: str, columns: Sequence[Any], cells: Sequence[Sequence[Any]]) -> list[str]:
    """Describe the columns of a file that code must convert. The descriptions call the table by the file's stem, as the
    code does that reads the file. ``cells`` has the cells of each column."""
    table = table_name(name)
    if not table:
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


def computed_columns_of(name: str, numbers: Sequence[Any], dates: Sequence[Any] = ()) -> list[str]:
    """Return the lines that say how code computes the amounts and the durations of the rows of a file. ``numbers`` and
    ``dates`` are the columns with numbers and with dates. The lines call the table as ``conversions_of`` does."""
    table = table_name(name)
    lines = [describe_amount(table, numbers), describe_duration(table, dates, numbers)] if table else []
    return list(filter(None, lines))


def periods_of(name: str, labels: Sequence[str], numbers: Sequence[str]) -> list[str]:
    """Return the line that says which columns of a file are periods, if there is one. ``numbers`` are the labels of the
    columns with numbers."""
    table = table_name(name)
    return list(filter(None, [describe_wide_table(table, labels, numbers) if table else ""]))


def reads_by(expression: str) -> str:
    """Return the text that states the expression which reads a file. The code-fence protocol for small models copies
    the expression from the description, so its form must not change."""
    return f"read by {expression}"


def extension_of(name: str) -> str:
    return name.rpartition(".")[2].lower()
