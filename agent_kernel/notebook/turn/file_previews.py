"""Finds and describes the files that a prompt names, in the words of ``core.file_facts``.

Opens only regular files below the working directory that a draft may read too. Every line quoted from a file is
indented, so that its content cannot pass for a fact about the file. Uses the standard library, and for files that
pandas reads by means of another library also that library.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import zipfile
from contextlib import suppress
from pathlib import Path

from agent_kernel.core.file_facts.binary_table import BY_PANDAS, parquet_facts, reads_by_pandas
from agent_kernel.core.file_facts.quoted_text import shorten
from agent_kernel.core.file_facts.table_keys import KeyColumns, describe_merge
from agent_kernel.core.file_facts.text_file import (
    JSON_LINES,
    MAX_COLUMNS,
    TABLES,
    TEXTS,
    FileFacts,
    describe_file,
    extension_of,
    read_head,
    text_file_facts,
)
from agent_kernel.core.file_facts.workbook import MAX_SHEETS, WHOLE_SHEET, Sheet, workbook_facts
from agent_kernel.notebook.draft.jail import readable_paths

MAX_FILES = 3
MAX_ENTRIES = 2_000
NAMED = re.compile(
    r"""["'`]([^"'`\n]{1,200}\.[A-Za-z]\w{0,9})["'`]|(?<![\w./\\-])((?:\.?/)?\w(?:[\w./-]*\w)?\.[A-Za-z]\w{0,9})(?!\w)"""
)
MAX_WORKBOOK_BYTES = 32 << 20
"""Limit in bytes of the unpacked size of a workbook. Of a larger workbook, nothing is read."""


def describe_files(prompt: str) -> str:
    """Describe existing files named in the prompt, at most MAX_FILES, and say how their tables are merged if they have
    common keys. Returns "" if the prompt names no file."""
    described: list[str] = []
    keys: list[KeyColumns] = []
    names = [quoted or plain for quoted, plain in NAMED.findall(prompt)]
    for name in dict.fromkeys([*names, *_names_with_spaces(prompt)]):
        if len(described) == MAX_FILES:
            break
        path = _readable_path(name)
        if path is not None and (facts := _facts_of(name, path, prompt)):
            described.append(describe_file(name, facts))
            keys += facts.keys
    return "\n".join(filter(None, [*described, describe_merge(keys)]))


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


def _names_with_spaces(prompt: str) -> list[str]:
    """Return the files of the working directory whose names have spaces and that the prompt names without quotes."""
    try:
        with os.scandir(".") as entries:
            names = [entry.name for entry in itertools.islice(entries, MAX_ENTRIES) if " " in entry.name]
    except OSError:
        return []
    return sorted(name for name in names if re.search(rf"(?<![\w./\\-]){re.escape(name)}(?!\w)", prompt))


def _readable_path(name: str) -> str | None:
    """Return the real path of ``name`` if it is a regular file below the working directory and a draft may read it;
    else None."""
    extension = extension_of(name)
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


def _facts_of(name: str, path: str, prompt: str) -> FileFacts | None:
    """Return the facts about one file; None if it cannot be read."""
    extension = extension_of(name)
    if extension in BY_PANDAS:
        return _binary_table_facts(name, path, prompt)
    head = read_head(path)
    return None if head is None else text_file_facts(name, head, prompt)


def _binary_table_facts(name: str, path: str, prompt: str) -> FileFacts:
    """Return the sheets and first rows of a workbook, or the columns of a parquet file; the size of the file if it
    cannot be read, or if a library that pandas needs for it is not installed."""
    extension = extension_of(name)
    # A library may raise anything for a damaged file, and may be missing.
    with suppress(Exception):
        if extension == "parquet":
            return _parquet_facts(name, path)
        if extension != "xls" and (facts := _workbook_facts(name, path, prompt)):
            return facts
    return FileFacts("table", f"{reads_by_pandas(name)}, {os.path.getsize(path)} bytes")


def _parquet_facts(name: str, path: str) -> FileFacts:
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    columns = [(field.name, str(field.type)) for field in list(file.schema_arrow)[:MAX_COLUMNS]]
    listed = ", ".join(f"{shorten(label)} {kind}" for label, kind in columns)
    size = f"{file.metadata.num_rows} rows x {file.metadata.num_columns} columns"
    return parquet_facts(name, f"{size}: {listed}", columns)


def _workbook_facts(name: str, path: str, prompt: str) -> FileFacts | None:
    """Return the facts about a workbook; None if its unpacked size is above MAX_WORKBOOK_BYTES, which is possible even
    for a small file, because workbooks are compressed."""
    from openpyxl import load_workbook

    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > MAX_WORKBOOK_BYTES:
            return None
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        sheets: dict[str, Sheet] = {}
        for sheet in book.worksheets[:MAX_SHEETS]:
            read = sheet.iter_rows(max_row=WHOLE_SHEET + 1, max_col=MAX_COLUMNS, values_only=True)
            rows = [list(row) for row in read]
            sheets[sheet.title] = Sheet(rows[:WHOLE_SHEET], len(rows) <= WHOLE_SHEET)
        unread = {title: Sheet([], whole=False) for title in book.sheetnames if title not in sheets}
        return workbook_facts(name, sheets | unread, prompt)
    finally:
        book.close()
